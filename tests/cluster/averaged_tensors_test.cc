// SPDX-License-Identifier: Apache-2.0

// Tests averaged tensors (TensorSpec::averaged) from programs with the C API to servers and back.
// Every program must find the mean of the values that the programs have left in them, whatever
// happens to the other tensors.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/job/job_spec.h"
#include "common/testing/status_matchers.h"
#include "tests/cluster/in_process_cluster.h"
#include "worker/capi/lodestar_worker.h"

namespace lodestar {
namespace {

using ::testing::HasSubstr;

constexpr int kNumFirst = 300;  // more than a block of int8
constexpr int kNumAveraged = 5;
constexpr int kNumLast = 3;
constexpr int kNumParameters = kNumFirst + kNumAveraged + kNumLast;
constexpr float kFirstWeight = 0.5f;

struct Freeing {
  void operator()(lodestar_worker* worker) const { lodestar_free(worker); }
};

// A program whose model has averaged tensors between others. Gradients and values are computed from
// round, step and program. Values are even numbers, so that means of two are exact.
class Program {
 public:
  Program(const std::string& coordinator, int number) : number_(number), worker_(lodestar_new()) {
    EXPECT_EQ(lodestar_set(handle(), "coordinator", coordinator.c_str()), 0);
    EXPECT_EQ(lodestar_set(handle(), "name", number == 0 ? "a" : "b"), 0);
    const int64_t first[] = {kNumFirst};
    const int64_t mean[] = {kNumAveraged - 1};
    const int64_t last[] = {kNumLast};
    EXPECT_EQ(lodestar_add_tensor(handle(), "first", first, 1, 0, 1), 0);
    EXPECT_EQ(lodestar_add_averaged(handle(), "running_mean", mean, 1, 1), 0);
    EXPECT_EQ(lodestar_add_averaged(handle(), "count", nullptr, 0, 1), 0);
    EXPECT_EQ(lodestar_add_tensor(handle(), "last", last, 1, 2, 0), 0);
    EXPECT_EQ(lodestar_set_data(handle(), "", 64, 0, 1, 0), 0);
    EXPECT_EQ(lodestar_allocate(handle()), 0) << lodestar_last_error();
    for (int k = 0; k < kNumParameters; ++k) lodestar_parameters(handle())[k] = kFirstWeight;
  }

  lodestar_worker* handle() { return worker_.get(); }

  static float ValueOf(int64_t round, int step, int number, int k) {
    return static_cast<float>(2 * (k + 10 * round + 100 * step) * (number == 0 ? 1 : -3));
  }

  // The parameters at the beginning of a round, from the second round on.
  struct Found {
    int64_t rounds = 0;  // number of rounds done before
    int last_step = 0;   // last step of the round before
    std::vector<float> parameters = {};
  };

  void Run(float gradient) {
    ASSERT_EQ(lodestar_start(handle()), 0) << lodestar_last_error();
    lodestar_step step = {};
    step.size = sizeof(step);
    int64_t rounds = 0;
    int last_step = 0;
    while (true) {
      ASSERT_EQ(lodestar_next(handle(), &step), 0) << lodestar_last_error();
      float* const parameters = lodestar_parameters(handle());
      const bool is_end = step.kind == LODESTAR_STEP_END;
      if (rounds > 0 && (is_end || step.step == 0)) {
        found_.push_back({rounds, last_step, {parameters, parameters + kNumParameters}});
      }
      if (is_end) return;
      for (int k = 0; k < kNumParameters; ++k) lodestar_gradients(handle())[k] = gradient;
      if (std::string(lodestar_job(handle(), "has_local_steps")) == "1") {
        for (int k = 0; k < kNumParameters; ++k) parameters[k] -= 0.25f;
      }
      for (int k = 0; k < kNumAveraged; ++k) {
        parameters[kNumFirst + k] = ValueOf(step.round, step.step, number_, k);
      }
      rounds = step.round + 1;
      last_step = step.step;
      if (step.round == skipped_round_) {
        ASSERT_EQ(lodestar_step_skipped(handle()), 0) << lodestar_last_error();
        continue;
      }
      EXPECT_EQ(lodestar_block_ready(handle(), 1), 3);
      EXPECT_THAT(lodestar_last_error(), HasSubstr("block 1 has averaged tensors"));
      EXPECT_EQ(lodestar_block_ready(handle(), 2), 0) << lodestar_last_error();
      ASSERT_EQ(lodestar_step_done(handle(), 1.0, 0, step.num_samples), 0);
    }
  }

  const std::vector<Found>& found() const { return found_; }

  int64_t skipped_round_ = -1;

 private:
  const int number_;
  const std::unique_ptr<lodestar_worker, Freeing> worker_;
  std::vector<Found> found_;
};

constexpr int kNumRounds = 4;

class AveragedTensorsTest : public testing::Test {
 protected:
  AveragedTensorsTest() : config_(SmallJobConfig()) {
    config_.job.schedule.peak = 0.5;
    config_.job.schedule.total_rounds = kNumRounds;
    config_.job.min_workers = 2;
    config_.exit_when_done = true;
  }

  // Runs two programs on two servers.
  void Run(float gradient = 1.0f, int64_t round_that_b_skips = -1) {
    ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config_, 2));
    a_ = std::make_unique<Program>(cluster->address(), 0);
    b_ = std::make_unique<Program>(cluster->address(), 1);
    b_->skipped_round_ = round_that_b_skips;
    std::thread run([&] { b_->Run(gradient); });
    a_->Run(gradient);
    run.join();
    ASSERT_EQ(a_->found().size(), kNumRounds);
    ASSERT_EQ(b_->found().size(), kNumRounds);
  }

  void ExpectMeans() {
    for (const Program* const program : {a_.get(), b_.get()}) {
      for (const Program::Found& found : program->found()) {
        for (int k = 0; k < kNumAveraged; ++k) {
          const int64_t round = found.rounds - 1;
          const float mean = (Program::ValueOf(round, found.last_step, 0, k) +
                              Program::ValueOf(round, found.last_step, 1, k)) /
                             2;
          EXPECT_EQ(found.parameters[kNumFirst + k], mean) << "round " << round;
        }
      }
    }
  }

  // Returns the last weight, which is not an averaged one, after checking that both programs found
  // it in the end.
  float LastWeight() const {
    const std::vector<float>& last = a_->found().back().parameters;
    EXPECT_EQ(last, b_->found().back().parameters);
    for (int k = 0; k < kNumParameters; ++k) {
      if (k >= kNumFirst && k < kNumFirst + kNumAveraged) continue;
      EXPECT_EQ(last[k], last[0]);
    }
    return last[0];
  }

  server::ServerConfig config_;
  std::unique_ptr<Program> a_;
  std::unique_ptr<Program> b_;
};

TEST_F(AveragedTensorsTest, InSyncTheOptimizerLeavesThemAlone) {
  config_.job.optimizer = {
      .kind = job::OptimizerKind::kMomentum, .momentum = 0.5, .weight_decay = 0.1};
  Run();
  ExpectMeans();
}

TEST_F(AveragedTensorsTest, TheyAreNoPartOfANormThatIsClipped) {
  // Only the gradient counts for the norm: 1 for each element that is not averaged.
  config_.job.clip_norm = 0.5 * std::sqrt(double{kNumFirst + kNumLast});
  Run();
  ExpectMeans();
  EXPECT_NEAR(LastWeight(), kFirstWeight - kNumRounds * 0.5f * 0.5f, 1e-6);
}

TEST_F(AveragedTensorsTest, TheyTravelAsTheyAreWhateverTheEncoding) {
  config_.job.push_encoding = params::Encoding::kInt8;
  config_.job.pull_encoding = params::Encoding::kInt8;
  Run();
  ExpectMeans();
  EXPECT_NEAR(LastWeight(), kFirstWeight - kNumRounds * 0.5f, 0.05) << "with what int8 loses";
}

TEST_F(AveragedTensorsTest, ASkippedStepLeavesTheValuesOfTheOthers) {
  for (const params::Encoding encoding : {params::Encoding::kFp32, params::Encoding::kInt8}) {
    config_.job.push_encoding = encoding;
    config_.job.pull_encoding = encoding;
    Run(/*gradient=*/1.0f, /*round_that_b_skips=*/1);
    EXPECT_NEAR(LastWeight(), kFirstWeight - kNumRounds * 0.5f, 0.05) << "with what int8 loses";
    for (const Program* const program : {a_.get(), b_.get()}) {
      const Program::Found& found = program->found()[1];
      ASSERT_EQ(found.rounds, 2);
      for (int k = 0; k < kNumAveraged; ++k) {
        EXPECT_EQ(found.parameters[kNumFirst + k], Program::ValueOf(1, 0, 0, k));
      }
    }
  }
}

TEST_F(AveragedTensorsTest, WithReduceTheyAreMeansBesideTheMeanGradient) {
  config_.job.optimizer.kind = job::OptimizerKind::kReduce;
  Run(/*gradient=*/3.0f);
  ExpectMeans();
  EXPECT_EQ(LastWeight(), 3.0f);
}

TEST_F(AveragedTensorsTest, InLockStepTheyAreMeansToo) {
  config_.job.mode = job::Mode::kAsync;
  config_.job.max_rounds_ahead = 0;
  Run();
  ExpectMeans();
}

TEST_F(AveragedTensorsTest, InAsyncTheLastToComeCounts) {
  config_.job.mode = job::Mode::kAsync;
  config_.job.min_workers = 1;
  // The worker clips its gradient. The averaged elements are not part of the norm, and clipping
  // must not scale them.
  config_.job.clip_norm = 0.5 * std::sqrt(double{kNumFirst + kNumLast});
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config_, 2));
  Program alone(cluster->address(), 0);
  alone.Run(/*gradient=*/1.0f);
  ASSERT_EQ(alone.found().size(), kNumRounds);
  for (const Program::Found& found : alone.found()) {
    for (int k = 0; k < kNumAveraged; ++k) {
      // The averaged elements are unchanged.
      EXPECT_EQ(found.parameters[kNumFirst + k], Program::ValueOf(found.rounds - 1, 0, 0, k));
    }
    EXPECT_NEAR(found.parameters[0], kFirstWeight - found.rounds * 0.5f * 0.5f, 1e-6);
  }
}

TEST_F(AveragedTensorsTest, InAsyncWithEncodingsTheyTravelAsTheyAre) {
  config_.job.mode = job::Mode::kAsync;
  config_.job.min_workers = 1;
  config_.job.push_encoding = params::Encoding::kFp16;
  config_.job.pull_encoding = params::Encoding::kInt8;
  config_.job.clip_norm = 1.0;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config_, 1));
  Program alone(cluster->address(), 0);
  alone.Run(/*gradient=*/1.0f);
  ASSERT_EQ(alone.found().size(), kNumRounds);
  for (const Program::Found& found : alone.found()) {
    EXPECT_EQ(found.parameters[kNumFirst + 1], Program::ValueOf(found.rounds - 1, 0, 0, 1));
  }
}

TEST_F(AveragedTensorsTest, WithLocalStepsTheyAreMeansOfWhatTheLastStepsLeft) {
  config_.job.mode = job::Mode::kLocalSgd;
  config_.job.local_steps = 3;
  config_.job.outer_optimizer = job::OuterOptimizerKind::kAverage;
  Run();
  ExpectMeans();
  EXPECT_EQ(a_->found().back().last_step, 2);
  EXPECT_EQ(LastWeight(), kFirstWeight - kNumRounds * 3 * 0.25f);
}

TEST_F(AveragedTensorsTest, TheOuterOptimizerLeavesThemAlone) {
  config_.job.mode = job::Mode::kLocalSgd;
  config_.job.local_steps = 2;
  config_.job.outer_optimizer = job::OuterOptimizerKind::kNesterov;
  Run();
  ExpectMeans();
  EXPECT_LT(LastWeight(), kFirstWeight - kNumRounds * 2 * 0.25f) << "momentum";
}

TEST_F(AveragedTensorsTest, EncodedLocalStepsMoveThemByTheMean) {
  config_.job.mode = job::Mode::kLocalSgd;
  config_.job.local_steps = 2;
  config_.job.outer_optimizer = job::OuterOptimizerKind::kAverage;
  config_.job.push_encoding = params::Encoding::kInt8;
  config_.job.pull_encoding = params::Encoding::kInt8;
  Run();
  ExpectMeans();
}

TEST_F(AveragedTensorsTest, ACheckpointHasThem) {
  config_.durability.checkpoint_dir = testing::TempDir() + "/averaged";
  std::filesystem::remove_all(config_.durability.checkpoint_dir);
  Run();
  config_.job.schedule.total_rounds = kNumRounds + 1;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config_, 1));
  a_ = std::make_unique<Program>(cluster->address(), 0);
  b_ = std::make_unique<Program>(cluster->address(), 1);
  for (Program* const program : {a_.get(), b_.get()}) {
    ASSERT_EQ(lodestar_start(program->handle()), 0) << lodestar_last_error();
  }
  lodestar_step step = {};
  step.size = sizeof(step);
  ASSERT_EQ(lodestar_next(a_->handle(), &step), 0) << lodestar_last_error();
  EXPECT_EQ(step.round, kNumRounds);
  for (int k = 0; k < kNumAveraged; ++k) {
    EXPECT_EQ(
        lodestar_parameters(a_->handle())[kNumFirst + k],
        (Program::ValueOf(kNumRounds - 1, 0, 0, k) + Program::ValueOf(kNumRounds - 1, 0, 1, k)) /
            2);
  }
  // The programs leave while a server still answers.
  a_.reset();
  b_.reset();
}

TEST(AveragedTensorsLayoutTest, BlocksAreAveragedOrNot) {
  const std::unique_ptr<lodestar_worker, Freeing> worker(lodestar_new());
  const int64_t shape[] = {3};
  EXPECT_EQ(lodestar_add_tensor(worker.get(), "weight", shape, 1, 0, 0), 0);
  EXPECT_EQ(lodestar_add_averaged(worker.get(), "running_mean", shape, 1, 0), 0);
  EXPECT_EQ(lodestar_allocate(worker.get()), 3);
  EXPECT_THAT(lodestar_last_error(),
              HasSubstr("'running_mean' is averaged, but other tensors of block 0 are not; put "
                        "averaged tensors into separate blocks"));
}

}  // namespace
}  // namespace lodestar
