// SPDX-License-Identifier: Apache-2.0

// Tests the C API against real servers. The programs train a linear regression in a loop of their
// own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/job/job_spec.h"
#include "common/testing/status_matchers.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/wire_client.h"
#include "worker/capi/lodestar_worker.h"

namespace lodestar {
namespace {

using ::testing::HasSubstr;

constexpr int kNumFeatures = 3;
constexpr int kNumSamples = 64;
constexpr int kNumParameters = kNumFeatures + 1;
constexpr float kFirstWeight = 0.5f;

float FeatureOf(int64_t sample, int feature) {
  return static_cast<float>((sample * (3 + 2 * feature) + feature) % 7) / 7.0f - 0.4f;
}

float TargetOf(int64_t sample) {
  return 0.3f + FeatureOf(sample, 0) - 2.0f * FeatureOf(sample, 1) + 0.5f * FeatureOf(sample, 2);
}

// Computes the gradient of the mean of half the squared errors over `samples`. Returns the sum of
// these halves.
double Differentiate(const float* weights, const int64_t* samples, int64_t num_samples,
                     float* gradient) {
  std::vector<double> sums(kNumParameters, 0.0);
  double loss = 0.0;
  for (int64_t i = 0; i < num_samples; ++i) {
    double error = weights[kNumFeatures] - TargetOf(samples[i]);
    for (int k = 0; k < kNumFeatures; ++k) error += weights[k] * FeatureOf(samples[i], k);
    for (int k = 0; k < kNumFeatures; ++k) sums[k] += error * FeatureOf(samples[i], k);
    sums[kNumFeatures] += error;
    loss += error * error / 2;
  }
  for (int k = 0; k < kNumParameters; ++k) {
    gradient[k] = static_cast<float>(sums[k] / static_cast<double>(num_samples));
  }
  return loss;
}

struct Freeing {
  void operator()(lodestar_worker* worker) const { lodestar_free(worker); }
};
using OwnedWorker = std::unique_ptr<lodestar_worker, Freeing>;

// A program that trains a linear regression with two blocks.
class Program {
 public:
  Program(const std::string& coordinator, const std::string& name) : worker_(lodestar_new()) {
    EXPECT_EQ(lodestar_set(handle(), "coordinator", coordinator.c_str()), 0);
    EXPECT_EQ(lodestar_set(handle(), "name", name.c_str()), 0);
    const int64_t shape[] = {kNumFeatures};
    EXPECT_EQ(lodestar_add_tensor(handle(), "weight", shape, 1, 0, 1), 0);
    const int64_t one[] = {1};
    EXPECT_EQ(lodestar_add_tensor(handle(), "bias", one, 1, 1, 0), 0);
    EXPECT_EQ(lodestar_set_data(handle(), "", kNumSamples, kNumSamples, 1, 0), 0);
    EXPECT_EQ(lodestar_allocate(handle()), 0) << lodestar_last_error();
    for (int k = 0; k < kNumParameters; ++k) lodestar_parameters(handle())[k] = kFirstWeight;
  }

  lodestar_worker* handle() { return worker_.get(); }
  int Start() { return lodestar_start(handle()); }

  // Counts the step if the last call expected its samples, and asks which step to expect next.
  void CheckForecast(const lodestar_step& step) {
    const std::vector<int64_t> samples(step.samples, step.samples + step.num_samples);
    if (expected_ == samples) ++num_foretold_;
    lodestar_step next = {};
    next.size = sizeof(next);
    ASSERT_EQ(lodestar_expect(handle(), 1, &next), 0) << lodestar_last_error();
    EXPECT_EQ(next.num_steps, step.num_steps);
    EXPECT_EQ(next.step, (step.step + 1) % step.num_steps);
    EXPECT_EQ(next.round, step.round + (next.step == 0 ? 1 : 0));
    expected_.assign(next.samples, next.samples + next.num_samples);
  }
  std::vector<int64_t> expected_;
  int num_foretold_ = 0;

  // Returns true if the steps of a round are to be skipped.
  std::function<bool(int64_t round)> skips_ = [](int64_t) { return false; };

  std::optional<double> rate_;  // of each step, if the servers are told one

  // Trains until the job is done. `local_rate` is the learning rate of the program's own optimizer,
  // if the job has local steps. Returns the result of the last lodestar_next().
  int Train(float local_rate = 0.0f) {
    lodestar_step step = {};
    step.size = sizeof(step);
    std::vector<float> unused(kNumParameters);
    int outcome = 0;
    while ((outcome = lodestar_next(handle(), &step)) == 0 && step.kind != LODESTAR_STEP_END) {
      const bool trains = step.kind == LODESTAR_STEP_TRAIN;
      if (trains && skips_(step.round)) {
        std::fill_n(lodestar_gradients(handle()), kNumParameters, std::nanf(""));
        EXPECT_EQ(lodestar_step_skipped(handle()), 0) << lodestar_last_error();
        continue;
      }
      float* const weights = lodestar_parameters(handle());
      float* const gradient = trains ? lodestar_gradients(handle()) : unused.data();
      const double loss = Differentiate(weights, step.samples, step.num_samples, gradient);
      if (trains) {
        CheckForecast(step);
        samples_.insert(samples_.end(), step.samples, step.samples + step.num_samples);
        steps_.push_back(step.num_samples);
        for (int k = 0; k < kNumParameters; ++k) weights[k] -= local_rate * gradient[k];
        if (rate_.has_value()) {
          EXPECT_EQ(lodestar_set_learning_rate(handle(), -1, *rate_), 0) << lodestar_last_error();
        }
        EXPECT_EQ(lodestar_block_ready(handle(), 1), 0) << lodestar_last_error();
      } else {
        heldout_loss_ += loss;
      }
      EXPECT_EQ(lodestar_step_done(handle(), loss, 0, step.num_samples), 0);
    }
    return outcome;
  }

  std::vector<int64_t> samples_;  // the samples that it has trained on
  std::vector<int64_t> steps_;    // number of samples of each step
  double heldout_loss_ = 0.0;     // sum of the losses of its last evaluation

 private:
  OwnedWorker worker_;
};

server::ServerConfig RegressionJob() {
  server::ServerConfig config = SmallJobConfig();
  config.job.schedule.peak = 0.25;
  config.job.schedule.total_rounds = 12;
  config.job.batch_size = 8;
  config.job.min_workers = 1;
  config.exit_when_done = true;
  return config;
}

// Does gradient descent over the samples that a program was given, step by step.
std::vector<float> DescendAlone(const std::vector<int64_t>& samples,
                                const std::vector<int64_t>& steps, float rate) {
  std::vector<float> weights(kNumParameters, kFirstWeight);
  std::vector<float> gradient(kNumParameters);
  const int64_t* next = samples.data();
  for (const int64_t count : steps) {
    Differentiate(weights.data(), next, count, gradient.data());
    next += count;
    for (int k = 0; k < kNumParameters; ++k) weights[k] -= rate * gradient[k];
  }
  return weights;
}

double HeldoutLossOf(const std::vector<float>& weights) {
  std::vector<int64_t> all(kNumSamples);
  for (int i = 0; i < kNumSamples; ++i) all[i] = i;
  std::vector<float> gradient(kNumParameters);
  return Differentiate(weights.data(), all.data(), kNumSamples, gradient.data());
}

TEST(CApiTest, GradientsTrainAsALoopOfOnesOwn) {
  const server::ServerConfig config = RegressionJob();
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  Program program(cluster->address(), "alone");
  ASSERT_EQ(program.Start(), 0) << lodestar_last_error();
  EXPECT_STREQ(lodestar_job(program.handle(), "mode"), "sync");
  EXPECT_STREQ(lodestar_job(program.handle(), "has_local_steps"), "0");
  EXPECT_STREQ(lodestar_job(program.handle(), "learning_rate"), "0.25");
  ASSERT_EQ(program.Train(), 0) << lodestar_last_error();
  ASSERT_EQ(program.steps_, std::vector<int64_t>(12, 8));
  EXPECT_EQ(program.num_foretold_, 11);
  const std::vector<float> alone = DescendAlone(program.samples_, program.steps_, 0.25f);
  // The evaluation at the end uses the weights after the last round.
  EXPECT_NEAR(program.heldout_loss_, HeldoutLossOf(alone), 1e-6);
  // The parameters at the end are also those after the last round.
  for (int k = 0; k < kNumParameters; ++k) {
    EXPECT_NEAR(lodestar_parameters(program.handle())[k], alone[k], 1e-6);
  }
  EXPECT_STREQ(lodestar_state(program.handle()), "ended");
}

TEST(CApiTest, StateOfTheOptimizerBeginsTheJobAndIsPulledInEachStep) {
  server::ServerConfig config = RegressionJob();
  config.job.optimizer.kind = job::OptimizerKind::kMomentum;
  config.job.optimizer.momentum = 0.5;
  config.job.schedule.total_rounds = 2;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 2));
  Program program(cluster->address(), "alone");
  lodestar_worker* const worker = program.handle();
  const std::vector<float> first = {1.0f, 2.0f, 3.0f, 4.0f};
  EXPECT_EQ(lodestar_set_initial_state(worker, 2, first.data(), 5), 3) << "vector 1 comes first";
  EXPECT_EQ(lodestar_set_initial_state(worker, 1, first.data(), -1), 3);
  ASSERT_EQ(lodestar_set_initial_state(worker, 1, first.data(), 5), 0) << lodestar_last_error();
  std::vector<float> state(kNumParameters);
  std::vector<int64_t> updates(2);
  int is_newer = -1;
  const auto pull = [&](int state_vector) {
    return lodestar_pull_state(worker, state_vector, state.data(), updates.data(), &is_newer);
  };
  EXPECT_EQ(lodestar_keep_state(worker, 1), 9) << "the worker has not started";
  ASSERT_EQ(program.Start(), 0) << lodestar_last_error();
  EXPECT_EQ(lodestar_set_initial_state(worker, 1, first.data(), 5), 9) << "it is too late";
  EXPECT_EQ(pull(1), 9) << "there is no step";
  ASSERT_EQ(lodestar_keep_state(worker, 1), 0);
  lodestar_step step = {};
  step.size = sizeof(step);
  std::vector<float> wanted = first;
  for (int64_t round = 0; round < 2; ++round) {
    ASSERT_EQ(lodestar_next(worker, &step), 0) << lodestar_last_error();
    ASSERT_EQ(step.kind, LODESTAR_STEP_TRAIN);
    EXPECT_EQ(lodestar_weights_version(worker), 5 + round);
    EXPECT_EQ(pull(0), 3);
    EXPECT_EQ(pull(2), 3) << "the optimizer has one vector";
    ASSERT_EQ(pull(1), 0) << lodestar_last_error();
    EXPECT_EQ(state, wanted);
    EXPECT_EQ(updates, std::vector<int64_t>(2, 5 + round));
    EXPECT_EQ(is_newer, 0);
    for (int k = 0; k < kNumParameters; ++k) {
      lodestar_gradients(worker)[k] = 1.0f;
      wanted[k] = 0.5f * wanted[k] + 1.0f;
    }
    ASSERT_EQ(lodestar_step_done(worker, 0.0, 0, 1), 0);
  }
  while (lodestar_next(worker, &step) == 0 && step.kind != LODESTAR_STEP_END) {
    ASSERT_EQ(lodestar_step_done(worker, 0.0, 0, 1), 0);
  }
  ASSERT_EQ(pull(1), 0) << lodestar_last_error();
  EXPECT_EQ(state, wanted) << "the state of the last weights is kept";
  EXPECT_EQ(updates, std::vector<int64_t>(2, 7));
  EXPECT_EQ(is_newer, 0);
  EXPECT_EQ(pull(2), 9) << "only one vector is kept";
}

TEST(CApiTest, StateIsNewerOnceTheServersHaveUpdatedItsBlock) {
  server::ServerConfig config = RegressionJob();
  config.job.optimizer.kind = job::OptimizerKind::kMomentum;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  Program program(cluster->address(), "alone");
  ASSERT_EQ(program.Start(), 0) << lodestar_last_error();
  lodestar_step step = {};
  step.size = sizeof(step);
  ASSERT_EQ(lodestar_next(program.handle(), &step), 0) << lodestar_last_error();
  std::fill_n(lodestar_gradients(program.handle()), kNumParameters, 1.0f);
  ASSERT_EQ(lodestar_block_ready(program.handle(), 1), 0);
  std::vector<float> state(kNumParameters);
  std::vector<int64_t> updates(2);
  int is_newer = 0;
  do {
    ASSERT_EQ(lodestar_pull_state(program.handle(), 1, state.data(), updates.data(), &is_newer), 0);
  } while (is_newer == 0);
  EXPECT_EQ(updates, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(state, (std::vector<float>{0.0f, 0.0f, 0.0f, 1.0f}));
}

TEST(CApiTest, RateThatAProgramTellsIsThatOfTheServersSteps) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(RegressionJob(), 1));
  Program program(cluster->address(), "alone");
  EXPECT_EQ(lodestar_propose(program.handle(), "lr_schedule", "cosine"), 3);
  EXPECT_EQ(lodestar_propose(program.handle(), "lr_schedule", "program"), 0);
  EXPECT_EQ(lodestar_set_learning_rate(program.handle(), -1, -0.5), 3);
  EXPECT_EQ(lodestar_set_learning_rate(program.handle(), 2, 0.5), 3) << "there are two blocks";
  EXPECT_EQ(lodestar_set_learning_rate(program.handle(), 0, std::nan("")), 3);
  EXPECT_EQ(lodestar_set_learning_rate(program.handle(), -1, 0.5), 9) << "there is no step";
  ASSERT_EQ(program.Start(), 0) << lodestar_last_error();
  EXPECT_STREQ(lodestar_job(program.handle(), "lr_schedule"), "program");
  program.rate_ = 0.125;
  ASSERT_EQ(program.Train(), 0) << lodestar_last_error();
  const std::vector<float> alone = DescendAlone(program.samples_, program.steps_, 0.125f);
  for (int k = 0; k < kNumParameters; ++k) {
    EXPECT_NEAR(lodestar_parameters(program.handle())[k], alone[k], 1e-6);
  }
}

TEST(CApiTest, RateThatIsToldWhereTheScheduleOfTheJobHoldsDoesNotCount) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(RegressionJob(), 1));
  Program program(cluster->address(), "alone");
  ASSERT_EQ(program.Start(), 0) << lodestar_last_error();
  EXPECT_STREQ(lodestar_job(program.handle(), "lr_schedule"), "constant");
  program.rate_ = 0.125;
  EXPECT_EQ(program.Train(), 0) << "the rate stays here";
  const std::vector<float> alone = DescendAlone(program.samples_, program.steps_, 0.25f);
  for (int k = 0; k < kNumParameters; ++k) {
    EXPECT_NEAR(lodestar_parameters(program.handle())[k], alone[k], 1e-6);
  }
}

TEST(CApiTest, EmbeddingsAreMarkedInTheJob) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(RegressionJob(), 1));
  const OwnedWorker worker(lodestar_new());
  EXPECT_EQ(lodestar_set(worker.get(), "coordinator", cluster->address().c_str()), 0);
  const int64_t shape[] = {4, 2};
  EXPECT_EQ(lodestar_add_embedding(worker.get(), "table", shape, 2, 0, 1), 0);
  EXPECT_EQ(lodestar_add_tensor(worker.get(), "matrix", shape, 2, 1, 1), 0);
  EXPECT_EQ(lodestar_set_data(worker.get(), "", kNumSamples, 0, 1, 0), 0);
  EXPECT_EQ(lodestar_allocate(worker.get()), 0) << lodestar_last_error();
  ASSERT_EQ(lodestar_start(worker.get()), 0) << lodestar_last_error();
  ASSERT_STREQ(lodestar_job(worker.get(), "mode"), "sync");
  WireClient other(cluster->address(), "other", 7);
  v1::Layout unmarked;
  for (const char* const name : {"table", "matrix"}) {
    v1::TensorSpec* const tensor = unmarked.add_tensors();
    tensor->set_name(name);
    tensor->set_block(unmarked.tensors_size() - 1);
    tensor->set_decay(true);
    tensor->mutable_shape()->Add(shape, shape + 2);
  }
  ASSERT_OK(other.Register(unmarked));
  const v1::Layout& layout = other.registration().layout();
  ASSERT_EQ(layout.tensors_size(), 2);
  EXPECT_TRUE(layout.tensors(0).embedding());
  EXPECT_FALSE(layout.tensors(1).embedding());
}

TEST(CApiTest, LocalStepsKeepTheProgramsOptimizer) {
  server::ServerConfig config = RegressionJob();
  config.job.mode = job::Mode::kLocalSgd;
  config.job.local_steps = 4;
  config.job.outer_optimizer = job::OuterOptimizerKind::kAverage;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  Program program(cluster->address(), "local");
  ASSERT_EQ(program.Start(), 0) << lodestar_last_error();
  EXPECT_STREQ(lodestar_job(program.handle(), "has_local_steps"), "1");
  ASSERT_EQ(program.Train(/*local_rate=*/0.1f), 0) << lodestar_last_error();
  ASSERT_EQ(program.steps_.size(), 48);
  EXPECT_EQ(program.num_foretold_, 47);
  const std::vector<float> alone = DescendAlone(program.samples_, program.steps_, 0.1f);
  EXPECT_NEAR(program.heldout_loss_, HeldoutLossOf(alone), 1e-6);
}

TEST(CApiTest, TwoProgramsShareTheSamples) {
  server::ServerConfig config = RegressionJob();
  config.job.min_workers = 2;
  config.job.schedule.total_rounds = 4;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 2));
  Program a(cluster->address(), "a");
  Program b(cluster->address(), "b");
  ASSERT_EQ(a.Start(), 0);
  ASSERT_EQ(b.Start(), 0);
  int outcome_of_b = -1;
  std::thread run([&] { outcome_of_b = b.Train(); });
  EXPECT_EQ(a.Train(), 0) << lodestar_last_error();
  run.join();
  EXPECT_EQ(outcome_of_b, 0);
  // Only the first of the 3 forecasts is wrong, because no second grant exists yet.
  EXPECT_EQ(a.num_foretold_, 2);
  EXPECT_EQ(b.num_foretold_, 2);
  // Each program has 4 rounds of 8 samples: together one pass over all samples, with no sample
  // twice.
  std::vector<int64_t> all = a.samples_;
  all.insert(all.end(), b.samples_.begin(), b.samples_.end());
  std::sort(all.begin(), all.end());
  std::vector<int64_t> each(kNumSamples);
  for (int i = 0; i < kNumSamples; ++i) each[i] = i;
  EXPECT_EQ(all, each);
}

lodestar_step EmptyStep() {
  lodestar_step step = {};
  step.size = sizeof(step);
  return step;
}

// Pushes vectors that are computed from round and worker, and checks what comes back.
class Reducer {
 public:
  Reducer(const std::string& coordinator, int number)
      : program_(coordinator, number == 0 ? "first" : "second"), number_(number) {}

  // What the program sees in each round: the number of samples of its part, and the values that it
  // pulled before the next round.
  struct Seen {
    int64_t samples = 0;
    std::vector<float> pulled = {};
  };

  // Weights of the contributions, if they are not their numbers of samples.
  std::function<std::optional<int64_t>(int64_t round)> weight_of_;

  // Returns the code of the error that the program has ended with. 0 means none.
  int Run() {
    TrainAll();
    return outcome_;
  }

  static float GradientOf(int64_t round, int number, int k) {
    return static_cast<float>((k + 1) * (round + 2) * (number == 0 ? 1 : -3));
  }
  const std::vector<Seen>& seen() const { return seen_; }

 private:
  void TrainAll() {
    ASSERT_EQ(program_.Start(), 0) << lodestar_last_error();
    lodestar_step step = {};
    step.size = sizeof(step);
    while (true) {
      outcome_ = lodestar_next(program_.handle(), &step);
      if (outcome_ != 0) return;
      const float* const weights = lodestar_parameters(program_.handle());
      if (!seen_.empty() && step.kind != LODESTAR_STEP_EVALUATE) {
        seen_.back().pulled.assign(weights, weights + kNumParameters);
      }
      if (step.kind == LODESTAR_STEP_END) return;
      if (step.kind == LODESTAR_STEP_TRAIN) {
        seen_.push_back({.samples = step.num_samples});
        for (int k = 0; k < kNumParameters; ++k) {
          lodestar_gradients(program_.handle())[k] = GradientOf(step.round, number_, k);
        }
        const std::optional<int64_t> weight =
            weight_of_ == nullptr ? std::nullopt : weight_of_(step.round);
        if (weight.has_value()) {
          ASSERT_EQ(lodestar_set_weight(program_.handle(), *weight), 0) << lodestar_last_error();
        }
      }
      ASSERT_EQ(lodestar_step_done(program_.handle(), 1.0, 0, step.num_samples), 0);
    }
  }

  Program program_;
  const int number_;
  int outcome_ = 0;
  std::vector<Seen> seen_;
};

TEST(CApiTest, ReduceBringsTheMeanOfARoundsGradientsByTheirSamples) {
  server::ServerConfig config = RegressionJob();
  config.job.optimizer.kind = job::OptimizerKind::kReduce;
  config.job.batch_size = 0;
  config.job.global_batch_size = 5;  // in parts of 3 and 2
  config.job.min_workers = 2;
  config.job.schedule.total_rounds = 6;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 2));
  Reducer first(cluster->address(), 0);
  Reducer second(cluster->address(), 1);
  std::thread run([&] { second.Run(); });
  first.Run();
  run.join();
  ASSERT_EQ(first.seen().size(), 6);
  ASSERT_EQ(second.seen().size(), 6);
  for (int round = 0; round < 6; ++round) {
    const auto& a = first.seen()[round];
    const auto& b = second.seen()[round];
    ASSERT_EQ(a.samples + b.samples, 5);
    EXPECT_NE(a.samples, b.samples);
    ASSERT_EQ(a.pulled.size(), kNumParameters);
    EXPECT_EQ(a.pulled, b.pulled);
    for (int k = 0; k < kNumParameters; ++k) {
      const float sum = a.samples * Reducer::GradientOf(round, 0, k) +
                        b.samples * Reducer::GradientOf(round, 1, k);
      EXPECT_FLOAT_EQ(a.pulled[k], sum / 5) << "round " << round;  // fifths are rounded
    }
  }
}

server::ServerConfig ReduceJob() {
  server::ServerConfig config = RegressionJob();
  config.job.optimizer.kind = job::OptimizerKind::kReduce;
  config.job.min_workers = 2;
  config.job.schedule.total_rounds = 6;
  return config;
}

TEST(CApiTest, WeightsCountInPlaceOfSamplesOnEveryServer) {
  server::ServerConfig config = ReduceJob();
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 2));
  Reducer first(cluster->address(), 0);
  Reducer second(cluster->address(), 1);
  first.weight_of_ = [](int64_t round) { return round == 5 ? 0 : 8 - round; };
  second.weight_of_ = [](int64_t round) { return round == 5 ? 1 << 20 : round; };
  std::thread run([&] { EXPECT_EQ(second.Run(), 0); });
  EXPECT_EQ(first.Run(), 0);
  run.join();
  ASSERT_EQ(first.seen().size(), 6);
  for (int round = 0; round < 6; ++round) {
    const double a = *first.weight_of_(round);
    const double b = *second.weight_of_(round);
    ASSERT_EQ(first.seen()[round].pulled.size(), kNumParameters);
    EXPECT_EQ(first.seen()[round].pulled, second.seen()[round].pulled);
    for (int k = 0; k < kNumParameters; ++k) {
      const double mean =
          (a * Reducer::GradientOf(round, 0, k) + b * Reducer::GradientOf(round, 1, k)) / (a + b);
      // The factors of the sum are fp32, and its elements are at most 84.
      EXPECT_NEAR(first.seen()[round].pulled[k], mean, 84 * 1e-6) << "round " << round;
    }
  }
}

TEST(CApiTest, RoundWhoseWeightsAreAllZeroMakesNoUpdate) {
  server::ServerConfig config = RegressionJob();
  config.job.schedule.total_rounds = 3;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 2));
  Program program(cluster->address(), "weightless");
  ASSERT_EQ(program.Start(), 0);
  lodestar_step step = EmptyStep();
  for (const int64_t weight : {1, 0, 1}) {
    ASSERT_EQ(lodestar_next(program.handle(), &step), 0) << lodestar_last_error();
    std::fill_n(lodestar_gradients(program.handle()), kNumParameters, 1.0f);
    ASSERT_EQ(lodestar_set_weight(program.handle(), weight), 0) << lodestar_last_error();
    ASSERT_EQ(lodestar_step_done(program.handle(), 1.0, 0, 8), 0);
  }
  ASSERT_EQ(program.Train(), 0) << lodestar_last_error();
  EXPECT_EQ(lodestar_weights_version(program.handle()), 2);
  EXPECT_EQ(lodestar_parameters(program.handle())[0], kFirstWeight - 2 * 0.25f);
}

TEST(CApiTest, JobSaysWhetherWeightsCount) {
  const auto counts = [](const std::function<void(job::JobSpec&)>& change) -> std::string {
    server::ServerConfig config = RegressionJob();
    config.job.schedule.total_rounds = 1;
    change(config.job);
    const auto cluster = InProcessCluster::Start(config, 1);
    if (!cluster.ok()) return cluster.status().ToString();
    Program program((*cluster)->address(), "asking");
    EXPECT_EQ(program.Start(), 0) << lodestar_last_error();
    std::string setting = lodestar_job(program.handle(), "counts_weights");
    EXPECT_EQ(program.Train(), 0) << lodestar_last_error();
    return setting;
  };
  EXPECT_EQ(counts([](job::JobSpec&) {}), "1");
  EXPECT_EQ(counts([](job::JobSpec& job) { job.mode = job::Mode::kLocalSgd; }), "1");
  EXPECT_EQ(counts([](job::JobSpec& job) { job.mode = job::Mode::kAsync; }), "0");
  EXPECT_EQ(counts([](job::JobSpec& job) { job.mode = job::Mode::kAsyncLocalSgd; }), "0");
  EXPECT_EQ(counts([](job::JobSpec& job) {
              job.mode = job::Mode::kAsync;
              job.max_rounds_ahead = 0;
            }),
            "1")
      << "lock step";
}

TEST(CApiTest, WeightsOfLocalStepsAddUpInThePseudoGradientOfARound) {
  server::ServerConfig config = RegressionJob();
  config.job.mode = job::Mode::kLocalSgd;
  config.job.local_steps = 2;
  config.job.outer_optimizer = job::OuterOptimizerKind::kSgd;
  config.job.outer_learning_rate = 1.0;
  config.job.min_workers = 2;
  config.job.schedule.total_rounds = 1;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 2));
  Program a(cluster->address(), "a");
  Program b(cluster->address(), "b");
  // The steps of a have weights 1 and 2, those of b 0 and 1. They change all weights by -1 and +3.
  const auto run = [](Program* program, int64_t first_weight, float change) {
    ASSERT_EQ(program->Start(), 0) << lodestar_last_error();
    lodestar_step step = EmptyStep();
    while (true) {
      ASSERT_EQ(lodestar_next(program->handle(), &step), 0) << lodestar_last_error();
      if (step.kind == LODESTAR_STEP_END) return;
      if (step.kind == LODESTAR_STEP_TRAIN) {
        float* const weights = lodestar_parameters(program->handle());
        for (int k = 0; k < kNumParameters; ++k) weights[k] += change / 2;
        ASSERT_EQ(lodestar_set_weight(program->handle(), first_weight + step.step), 0);
      }
      ASSERT_EQ(lodestar_step_done(program->handle(), 1.0, 0, step.num_samples), 0);
    }
  };
  std::thread other([&] { run(&b, 0, 3.0f); });
  run(&a, 1, -1.0f);
  other.join();
  for (int k = 0; k < kNumParameters; ++k) {
    EXPECT_EQ(lodestar_parameters(a.handle())[k], kFirstWeight + (3 * -1.0f + 1 * 3.0f) / 4);
  }
}

TEST(CApiTest, ProgramWithWeightsAmongProgramsWithoutIsRefused) {
  server::ServerConfig config = ReduceJob();
  config.job.keep_workers = 1;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  Reducer first(cluster->address(), 0);
  Reducer second(cluster->address(), 1);
  second.weight_of_ = [](int64_t) { return 5; };
  int outcome_of_second = -1;
  std::thread run([&] { outcome_of_second = second.Run(); });
  const int outcome_of_first = first.Run();
  run.join();
  // The contribution that comes second does not fit. Each of the two blocks has a bucket of its
  // own. If different programs are second in the two buckets, both are refused.
  EXPECT_EQ(std::max(outcome_of_first, outcome_of_second), 9);
  EXPECT_THAT(std::min(outcome_of_first, outcome_of_second), testing::AnyOf(0, 9));
}

TEST(CApiTest, ARoundOfSkippedStepsChangesNothing) {
  for (const job::Mode mode : {job::Mode::kSync, job::Mode::kAsync}) {
    for (const double clip_norm : {0.0, 100.0}) {
      server::ServerConfig config = RegressionJob();
      config.job.mode = mode;
      config.job.clip_norm = clip_norm;
      ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 2));
      Program program(cluster->address(), "alone");
      program.skips_ = [](int64_t round) { return round % 3 == 1; };
      ASSERT_EQ(program.Start(), 0) << lodestar_last_error();
      ASSERT_EQ(program.Train(), 0) << lodestar_last_error();
      ASSERT_EQ(program.steps_.size(), 8);
      const std::vector<float> alone = DescendAlone(program.samples_, program.steps_, 0.25f);
      for (int k = 0; k < kNumParameters; ++k) {
        EXPECT_NEAR(lodestar_parameters(program.handle())[k], alone[k], 1e-6);
      }
    }
  }
}

TEST(CApiTest, ASkippedStepLeavesTheGradientOfTheOthers) {
  server::ServerConfig config = RegressionJob();
  config.job.min_workers = 2;
  config.job.push_encoding = params::Encoding::kBf16;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  Program trains(cluster->address(), "trains");
  Program skips(cluster->address(), "skips");
  skips.skips_ = [](int64_t) { return true; };
  ASSERT_EQ(trains.Start(), 0);
  ASSERT_EQ(skips.Start(), 0);
  std::thread run([&] { EXPECT_EQ(skips.Train(), 0) << lodestar_last_error(); });
  EXPECT_EQ(trains.Train(), 0) << lodestar_last_error();
  run.join();
  EXPECT_EQ(trains.steps_.size(), 12);
  const std::vector<float> alone = DescendAlone(trains.samples_, trains.steps_, 0.25f);
  for (int k = 0; k < kNumParameters; ++k) {
    EXPECT_NEAR(lodestar_parameters(skips.handle())[k], alone[k], 1e-2);  // bf16 rounds
  }
}

TEST(CApiTest, WhatCannotBeSkippedIsSaid) {
  server::ServerConfig config = RegressionJob();
  config.job.schedule.total_rounds = 1;
  lodestar_step step = {};
  step.size = sizeof(step);
  {
    ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
    Program program(cluster->address(), "early");
    ASSERT_EQ(program.Start(), 0);
    EXPECT_EQ(lodestar_step_skipped(program.handle()), 9);
    ASSERT_EQ(lodestar_next(program.handle(), &step), 0) << lodestar_last_error();
    EXPECT_EQ(lodestar_block_ready(program.handle(), 1), 0);
    EXPECT_EQ(lodestar_step_skipped(program.handle()), 9);
    EXPECT_THAT(lodestar_last_error(), HasSubstr("may have been sent"));
    EXPECT_EQ(lodestar_step_done(program.handle(), 1.0, 0, 1), 0);
    EXPECT_EQ(program.Train(), 0);
  }
  config.job.mode = job::Mode::kLocalSgd;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  Program program(cluster->address(), "local");
  ASSERT_EQ(program.Start(), 0);
  ASSERT_EQ(lodestar_next(program.handle(), &step), 0) << lodestar_last_error();
  EXPECT_EQ(lodestar_step_skipped(program.handle()), 3);
  EXPECT_THAT(lodestar_last_error(), HasSubstr("has local steps"));
  EXPECT_EQ(lodestar_step_done(program.handle(), 1.0, 0, 1), 0);
  EXPECT_EQ(program.Train(), 0);
}

TEST(CApiTest, ExtendedStepGetsTheNextSamplesAndIsOneUpdate) {
  server::ServerConfig config = RegressionJob();
  config.job.schedule.total_rounds = 3;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 2));
  Program program(cluster->address(), "extending");
  ASSERT_EQ(program.Start(), 0) << lodestar_last_error();
  lodestar_step step = EmptyStep();
  std::vector<float> weights(kNumParameters, kFirstWeight);
  std::vector<float> gradient(kNumParameters);
  int64_t next_position = 0;
  for (int64_t round = 0; round < 3; ++round) {
    ASSERT_EQ(lodestar_next(program.handle(), &step), 0) << lodestar_last_error();
    ASSERT_EQ(step.round, round);
    ASSERT_EQ(lodestar_weights_version(program.handle()), round);
    std::vector<int64_t> samples;
    // Round 0 is not extended, round 1 once, and round 2 twice.
    for (int64_t batch = 0; batch <= round; ++batch) {
      if (batch > 0) {
        ASSERT_EQ(lodestar_extend(program.handle(), &step), 0) << lodestar_last_error();
      }
      EXPECT_EQ(step.round, round);
      EXPECT_EQ(step.first_position, next_position);
      ASSERT_EQ(step.num_samples, 8);
      next_position += 8;
      samples.insert(samples.end(), step.samples, step.samples + 8);
    }
    program.samples_.insert(program.samples_.end(), samples.begin(), samples.end());
    const auto count = static_cast<int64_t>(samples.size());
    const double loss = Differentiate(lodestar_parameters(program.handle()), samples.data(), count,
                                      lodestar_gradients(program.handle()));
    Differentiate(weights.data(), samples.data(), count, gradient.data());
    for (int k = 0; k < kNumParameters; ++k) weights[k] -= 0.25f * gradient[k];
    ASSERT_EQ(lodestar_step_done(program.handle(), loss, 0, count), 0) << lodestar_last_error();
  }
  ASSERT_EQ(program.Train(), 0) << lodestar_last_error();
  for (int k = 0; k < kNumParameters; ++k) {
    EXPECT_NEAR(lodestar_parameters(program.handle())[k], weights[k], 1e-6);
  }
  std::sort(program.samples_.begin(), program.samples_.end());
  EXPECT_EQ(std::unique(program.samples_.begin(), program.samples_.end()), program.samples_.end())
      << "48 of 64 samples, each once";
}

TEST(CApiTest, ExtensionsOfTwoProgramsShareNoSample) {
  server::ServerConfig config = RegressionJob();
  config.job.min_workers = 2;
  config.job.schedule.total_rounds = 2;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  Program a(cluster->address(), "a");
  Program b(cluster->address(), "b");
  const auto run = [](Program* program) {
    ASSERT_EQ(program->Start(), 0) << lodestar_last_error();
    lodestar_step step = EmptyStep();
    while (true) {
      ASSERT_EQ(lodestar_next(program->handle(), &step), 0) << lodestar_last_error();
      if (step.kind == LODESTAR_STEP_END) return;
      if (step.kind == LODESTAR_STEP_TRAIN) {
        program->samples_.insert(program->samples_.end(), step.samples, step.samples + 8);
        ASSERT_EQ(lodestar_extend(program->handle(), &step), 0) << lodestar_last_error();
        program->samples_.insert(program->samples_.end(), step.samples, step.samples + 8);
      }
      ASSERT_EQ(lodestar_step_done(program->handle(), 1.0, 0, 16), 0);
    }
  };
  std::thread other([&] { run(&b); });
  run(&a);
  other.join();
  std::vector<int64_t> all = a.samples_;
  all.insert(all.end(), b.samples_.begin(), b.samples_.end());
  std::sort(all.begin(), all.end());
  std::vector<int64_t> each(kNumSamples);
  for (int i = 0; i < kNumSamples; ++i) each[i] = i;
  EXPECT_EQ(all, each);
}

TEST(CApiTest, StepWithoutSamplesMovesNoCursorAndCanBeExtended) {
  server::ServerConfig config = RegressionJob();
  config.job.schedule.total_rounds = 3;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  Program program(cluster->address(), "keeping");
  ASSERT_EQ(program.Start(), 0) << lodestar_last_error();
  lodestar_step step = EmptyStep();
  ASSERT_EQ(lodestar_next(program.handle(), &step), 0) << lodestar_last_error();
  EXPECT_EQ(step.num_samples, 8);
  EXPECT_EQ(lodestar_keep_samples(program.handle()), 0) << lodestar_last_error();
  ASSERT_EQ(lodestar_step_done(program.handle(), 1.0, 0, 8), 0);
  ASSERT_EQ(lodestar_next(program.handle(), &step), 0) << lodestar_last_error();
  EXPECT_EQ(step.num_samples, 0);
  ASSERT_EQ(lodestar_step_done(program.handle(), 1.0, 0, 8), 0);
  ASSERT_EQ(lodestar_next(program.handle(), &step), 0) << lodestar_last_error();
  EXPECT_EQ(step.num_samples, 0);
  ASSERT_EQ(lodestar_extend(program.handle(), &step), 0) << lodestar_last_error();
  EXPECT_EQ(step.num_samples, 8);
  EXPECT_EQ(step.first_position, 8) << "the samples after those of the first step";
  ASSERT_EQ(lodestar_step_done(program.handle(), 1.0, 0, 8), 0);
  EXPECT_EQ(program.Train(), 0) << lodestar_last_error();
}

TEST(CApiTest, StepThatCannotBeExtendedIsRefusedAndGoesOn) {
  server::ServerConfig config = RegressionJob();
  config.job.schedule.total_rounds = 1;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  Program program(cluster->address(), "refused");
  lodestar_step step = EmptyStep();
  EXPECT_EQ(lodestar_extend(program.handle(), &step), 9) << "not started";
  ASSERT_EQ(program.Start(), 0);
  EXPECT_EQ(lodestar_extend(program.handle(), &step), 9) << "no step";
  ASSERT_EQ(lodestar_next(program.handle(), &step), 0) << lodestar_last_error();
  lodestar_step sizeless = {};
  EXPECT_EQ(lodestar_extend(program.handle(), &sizeless), 3);
  EXPECT_EQ(lodestar_extend(program.handle(), nullptr), 3);
  EXPECT_EQ(lodestar_block_ready(program.handle(), 1), 0);
  EXPECT_EQ(lodestar_extend(program.handle(), &step), 9) << "a block may have been sent";
  EXPECT_EQ(lodestar_step_done(program.handle(), 1.0, 0, 8), 0) << "the step is still open";
  EXPECT_EQ(lodestar_extend(program.handle(), &step), 9) << "the step is done";
  ASSERT_EQ(lodestar_next(program.handle(), &step), 0) << lodestar_last_error();
  ASSERT_EQ(step.kind, LODESTAR_STEP_EVALUATE);
  EXPECT_EQ(lodestar_extend(program.handle(), &step), 9) << "an evaluation";
  EXPECT_EQ(lodestar_step_done(program.handle(), 1.0, 0, 8), 0);
  EXPECT_EQ(program.Train(), 0);
  EXPECT_EQ(lodestar_extend(program.handle(), &step), 9) << "the job is over";
}

TEST(CApiTest, ExtensionInAJobWithLocalStepsIsRefused) {
  server::ServerConfig config = RegressionJob();
  config.job.schedule.total_rounds = 1;
  config.job.mode = job::Mode::kLocalSgd;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  Program program(cluster->address(), "local");
  ASSERT_EQ(program.Start(), 0);
  lodestar_step step = EmptyStep();
  ASSERT_EQ(lodestar_next(program.handle(), &step), 0) << lodestar_last_error();
  EXPECT_EQ(lodestar_extend(program.handle(), &step), 3);
  EXPECT_EQ(lodestar_keep_samples(program.handle()), 3);
  EXPECT_EQ(step.num_samples, 8);
  EXPECT_EQ(lodestar_step_done(program.handle(), 1.0, 0, 1), 0);
  EXPECT_EQ(program.Train(), 0);
}

TEST(CApiTest, WeightOutOfRangeOrOutOfPlaceIsRefused) {
  server::ServerConfig config = RegressionJob();
  config.job.schedule.total_rounds = 1;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  Program program(cluster->address(), "refused");
  constexpr int64_t kMost = int64_t{1} << 40;
  EXPECT_EQ(lodestar_set_weight(program.handle(), 1), 9) << "not started";
  ASSERT_EQ(program.Start(), 0);
  lodestar_step step = EmptyStep();
  ASSERT_EQ(lodestar_next(program.handle(), &step), 0) << lodestar_last_error();
  for (const int64_t bad : {int64_t{-1}, INT64_MIN, kMost + 1, INT64_MAX}) {
    EXPECT_EQ(lodestar_set_weight(program.handle(), bad), 3) << bad;
  }
  for (const int64_t good : {int64_t{0}, kMost, int64_t{3}}) {
    EXPECT_EQ(lodestar_set_weight(program.handle(), good), 0) << lodestar_last_error();
  }
  EXPECT_EQ(lodestar_block_ready(program.handle(), 1), 0);
  EXPECT_EQ(lodestar_set_weight(program.handle(), 3), 9) << "a block may have been sent";
  EXPECT_EQ(lodestar_step_done(program.handle(), 1.0, 0, 8), 0);
  EXPECT_EQ(lodestar_set_weight(program.handle(), 3), 9) << "the step is done";
  ASSERT_EQ(lodestar_next(program.handle(), &step), 0) << lodestar_last_error();
  ASSERT_EQ(step.kind, LODESTAR_STEP_EVALUATE);
  EXPECT_EQ(lodestar_set_weight(program.handle(), 3), 9) << "an evaluation";
  EXPECT_EQ(lodestar_step_done(program.handle(), 1.0, 0, 8), 0);
  EXPECT_EQ(program.Train(), 0);
}

TEST(CApiTest, WhoStopsHandsOverAndWhoLeavesGoesAtOnce) {
  server::ServerConfig config = RegressionJob();
  config.job.schedule.total_rounds = 1000000;
  config.exit_when_done = false;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  Program stopped(cluster->address(), "stopped");
  ASSERT_EQ(stopped.Start(), 0);
  std::thread run([&] { EXPECT_EQ(stopped.Train(), 0) << lodestar_last_error(); });
  EXPECT_STREQ(lodestar_job(stopped.handle(), "rounds"), "1000000");
  EXPECT_EQ(lodestar_stop(stopped.handle()), 0);
  run.join();

  Program leaving(cluster->address(), "leaving");
  ASSERT_EQ(leaving.Start(), 0);
  lodestar_step step = {};
  step.size = sizeof(step);
  ASSERT_EQ(lodestar_next(leaving.handle(), &step), 0) << lodestar_last_error();
  EXPECT_NE(lodestar_leave(leaving.handle()), 0);
  EXPECT_THAT(lodestar_last_error(), HasSubstr("in the middle of a step"));
}

TEST(CApiTest, LeavingBetweenStepsHandsInThoseThatWereMade) {
  server::ServerConfig config = RegressionJob();
  config.job.mode = job::Mode::kLocalSgd;
  config.job.local_steps = 4;
  config.job.schedule.total_rounds = 1000000;
  config.exit_when_done = false;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  Program program(cluster->address(), "leaving");
  ASSERT_EQ(program.Start(), 0);
  lodestar_step step = {};
  step.size = sizeof(step);
  for (int i = 0; i < 6; ++i) {
    ASSERT_EQ(lodestar_next(program.handle(), &step), 0) << lodestar_last_error();
    ASSERT_EQ(lodestar_step_done(program.handle(), 1.0, 0, step.num_samples), 0);
  }
  EXPECT_EQ(step.round, 1);
  EXPECT_EQ(step.step, 1);
  EXPECT_EQ(lodestar_leave(program.handle()), 0) << lodestar_last_error();
  // The steps of round 1 were handed in, so the next program gets round 2.
  Program next(cluster->address(), "next");
  ASSERT_EQ(next.Start(), 0);
  ASSERT_EQ(lodestar_next(next.handle(), &step), 0) << lodestar_last_error();
  EXPECT_EQ(step.round, 2);
}

TEST(CApiTest, LeavingBetweenRoundsIsNoFailure) {
  server::ServerConfig config = RegressionJob();
  config.job.schedule.total_rounds = 1000000;
  config.exit_when_done = false;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  Program program(cluster->address(), "leaving");
  ASSERT_EQ(program.Start(), 0);
  lodestar_step step = {};
  step.size = sizeof(step);
  ASSERT_EQ(lodestar_next(program.handle(), &step), 0) << lodestar_last_error();
  ASSERT_EQ(lodestar_step_done(program.handle(), 1.0, 0, step.num_samples), 0);
  // The next grant is offered, but the program does not take it.
  while (lodestar_wait(program.handle(), /*for_job=*/0, /*milliseconds=*/100) == 0) {
  }
  EXPECT_EQ(lodestar_leave(program.handle()), 0) << lodestar_last_error();
}

TEST(CApiTest, WhoWaitsMayLookAtSomethingElse) {
  const server::ServerConfig config = RegressionJob();
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  Program program(cluster->address(), "waiting");
  EXPECT_EQ(lodestar_wait(program.handle(), 0, 0), 1);  // not started, so an error comes at once
  ASSERT_EQ(program.Start(), 0);
  while (lodestar_wait(program.handle(), /*for_job=*/1, /*milliseconds=*/100) == 0) {
  }
  EXPECT_STREQ(lodestar_job(program.handle(), "optimizer"), "sgd");
  EXPECT_EQ(lodestar_job(program.handle(), "optimiser"), nullptr);
  EXPECT_EQ(lodestar_last_code(), 3);
  EXPECT_EQ(program.Train(), 0);
}

// A program that takes the order of its tensors from the job.
class AdoptingProgram {
 public:
  AdoptingProgram(const std::string& coordinator, const std::string& name)
      : worker_(lodestar_new()) {
    EXPECT_EQ(lodestar_set(handle(), "coordinator", coordinator.c_str()), 0);
    EXPECT_EQ(lodestar_set(handle(), "name", name.c_str()), 0);
    EXPECT_EQ(lodestar_set_data(handle(), "", kNumSamples, kNumSamples, 1, 0), 0);
  }
  void Add(const char* name, const std::vector<int64_t>& shape) {
    EXPECT_EQ(lodestar_add_tensor(handle(), name, shape.data(), static_cast<int>(shape.size()),
                                  /*block=*/0, /*decays=*/0),
              0);
  }
  lodestar_worker* handle() { return worker_.get(); }

  // Trains with gradients of zeros until the job is done.
  int TrainOnZeros() {
    lodestar_step step = {};
    step.size = sizeof(step);
    int outcome = 0;
    while ((outcome = lodestar_next(handle(), &step)) == 0 && step.kind != LODESTAR_STEP_END) {
      EXPECT_EQ(lodestar_step_done(handle(), 0.0, 0, 0), 0);
    }
    return outcome;
  }

 private:
  OwnedWorker worker_;
};

TEST(CApiTest, AProgramThatStartsFirstTakesTheOrderOfTheJob) {
  server::ServerConfig config = RegressionJob();
  config.job.min_workers = 2;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 2));
  Program first(cluster->address(), "first");
  ASSERT_EQ(first.Start(), 0);
  EXPECT_STREQ(lodestar_job(first.handle(), "layout_is_own"), "1");
  AdoptingProgram second(cluster->address(), "second");
  second.Add("bias", {1});
  second.Add("weight", {kNumFeatures});
  ASSERT_EQ(lodestar_start(second.handle()), 0) << lodestar_last_error();
  EXPECT_NE(lodestar_add_tensor(second.handle(), "late", nullptr, 0, 0, 0), 0);
  EXPECT_EQ(lodestar_offset(second.handle(), "weight"), -1);
  EXPECT_EQ(lodestar_num_blocks(second.handle()), 0);
  EXPECT_EQ(lodestar_block(second.handle(), "weight"), -1);
  lodestar_step step = {};
  step.size = sizeof(step);
  EXPECT_EQ(lodestar_wait(second.handle(), /*for_job=*/0, /*milliseconds=*/0), 1);
  EXPECT_NE(lodestar_next(second.handle(), &step), 0);
  EXPECT_THAT(lodestar_last_error(), HasSubstr("allocate them before the first step"));
  ASSERT_EQ(lodestar_allocate(second.handle()), 0) << lodestar_last_error();
  EXPECT_NE(lodestar_allocate(second.handle()), 0);
  EXPECT_EQ(lodestar_offset(second.handle(), "weight"), 0);
  EXPECT_EQ(lodestar_offset(second.handle(), "bias"), kNumFeatures);
  EXPECT_EQ(lodestar_num_blocks(second.handle()), 2);
  EXPECT_EQ(lodestar_block(second.handle(), "bias"), 1);
  EXPECT_EQ(lodestar_block(second.handle(), "none"), -1);
  std::thread run([&] { EXPECT_EQ(first.Train(), 0) << lodestar_last_error(); });
  EXPECT_EQ(second.TrainOnZeros(), 0) << lodestar_last_error();
  run.join();
  // Half of each mean consists of zeros.
  const std::vector<float> alone = DescendAlone(first.samples_, first.steps_, 0.125f);
  for (int k = 0; k < kNumParameters; ++k) {
    EXPECT_NEAR(lodestar_parameters(second.handle())[k], alone[k], 1e-6);
  }
}

TEST(CApiTest, TheOrderThatWasTakenStaysWhenTheServersBeginAnew) {
  server::ServerConfig config = RegressionJob();
  config.exit_when_done = false;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  AdoptingProgram second(cluster->address(), "second");
  second.Add("bias", {1});
  second.Add("weight", {kNumFeatures});
  lodestar_step step = {};
  step.size = sizeof(step);
  {
    Program first(cluster->address(), "first");
    ASSERT_EQ(first.Start(), 0);
    EXPECT_STREQ(lodestar_job(first.handle(), "mode"), "sync");
    ASSERT_EQ(lodestar_start(second.handle()), 0) << lodestar_last_error();
    ASSERT_EQ(lodestar_allocate(second.handle()), 0) << lodestar_last_error();
  }
  ASSERT_EQ(lodestar_next(second.handle(), &step), 0) << lodestar_last_error();
  ASSERT_EQ(lodestar_step_done(second.handle(), 0.0, 0, 0), 0);
  const uint64_t before = step.server_incarnation;
  // The server restarts without a checkpoint, so the job begins with the weights that the program
  // has.
  cluster->Stop(0, server::Server::StopKind::kImmediate);
  ASSERT_OK(cluster->StartAgain(0));
  do {
    ASSERT_EQ(lodestar_next(second.handle(), &step), 0) << lodestar_last_error();
    ASSERT_EQ(lodestar_step_done(second.handle(), 0.0, 0, 0), 0);
  } while (step.server_incarnation == before);
  EXPECT_EQ(lodestar_offset(second.handle(), "weight"), 0);
  EXPECT_EQ(lodestar_leave(second.handle()), 0) << lodestar_last_error();
}

TEST(CApiTest, TheFirstProgramMayStartBeforeItHasItsWeights) {
  const server::ServerConfig config = RegressionJob();
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  AdoptingProgram program(cluster->address(), "first");
  program.Add("weight", {kNumFeatures});
  ASSERT_EQ(lodestar_start(program.handle()), 0) << lodestar_last_error();
  ASSERT_EQ(lodestar_allocate(program.handle()), 0) << lodestar_last_error();
  for (int k = 0; k < kNumFeatures; ++k) lodestar_parameters(program.handle())[k] = kFirstWeight;
  EXPECT_EQ(program.TrainOnZeros(), 0) << lodestar_last_error();
  for (int k = 0; k < kNumFeatures; ++k) {
    EXPECT_EQ(lodestar_parameters(program.handle())[k], kFirstWeight);
  }
}

TEST(CApiTest, AProgramTrainsTheServersModel) {
  server::ServerConfig config = RegressionJob();
  config.job.model = *params::ModelPreset("mlp");
  config.job.schedule.total_rounds = 3;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  ASSERT_OK_AND_ASSIGN(const params::Layout layout, params::BuildLayout(config.job.model));
  AdoptingProgram program(cluster->address(), "a");
  for (size_t i = layout.tensors().size(); i-- > 0;) {
    program.Add(layout.tensors()[i].name.c_str(), layout.tensors()[i].shape);
  }
  ASSERT_EQ(lodestar_start(program.handle()), 0) << lodestar_last_error();
  EXPECT_STREQ(lodestar_job(program.handle(), "model"), "mlp");
  EXPECT_STREQ(lodestar_job(program.handle(), "layout_is_own"), "0");
  ASSERT_EQ(lodestar_allocate(program.handle()), 0) << lodestar_last_error();
  for (const params::TensorSpec& tensor : layout.tensors()) {
    EXPECT_EQ(lodestar_offset(program.handle(), tensor.name.c_str()), tensor.offset);
    EXPECT_EQ(lodestar_block(program.handle(), tensor.name.c_str()), tensor.block);
  }
  EXPECT_EQ(program.TrainOnZeros(), 0) << lodestar_last_error();
}

TEST(CApiTest, TensorsThatAreNotTheJobsAreNamed) {
  const server::ServerConfig config = RegressionJob();
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  Program first(cluster->address(), "first");
  ASSERT_EQ(first.Start(), 0);
  lodestar_job(first.handle(), "mode");
  AdoptingProgram second(cluster->address(), "second");
  second.Add("weight", {kNumFeatures});
  ASSERT_EQ(lodestar_start(second.handle()), 0) << lodestar_last_error();
  EXPECT_EQ(lodestar_allocate(second.handle()), 9);
  EXPECT_THAT(lodestar_last_error(), HasSubstr("the job has tensor 'bias' [1]"));
  EXPECT_EQ(second.TrainOnZeros(), 9);
  EXPECT_THAT(lodestar_last_error(), HasSubstr("the job has tensor 'bias' [1]"));
}

TEST(CApiTest, WhoWaitsForItsVectorsCanStopAndLeave) {
  server::ServerConfig config = RegressionJob();
  config.exit_when_done = false;
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  for (const bool leaves : {true, false}) {
    AdoptingProgram program(cluster->address(), leaves ? "leaving" : "stopping");
    program.Add("weight", {kNumFeatures});
    ASSERT_EQ(lodestar_start(program.handle()), 0) << lodestar_last_error();
    EXPECT_STREQ(lodestar_job(program.handle(), "mode"), "sync");
    EXPECT_EQ(leaves ? lodestar_leave(program.handle()) : lodestar_stop(program.handle()), 0)
        << lodestar_last_error();
    ASSERT_EQ(lodestar_allocate(program.handle()), 0) << lodestar_last_error();
    EXPECT_EQ(program.TrainOnZeros(), 0) << lodestar_last_error();
  }
}

TEST(CApiTest, TheFirstProgramSaysWithWhichOptimizer) {
  server::ServerConfig config = RegressionJob();
  config.given = {"batch_size"};
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 2));
  Program program(cluster->address(), "proposing");
  for (const auto& [setting, value] :
       {std::pair("optimizer", "sgd"), std::pair("learning_rate", "0.125"),
        std::pair("weight_decay", "0"), std::pair("batch_size", "5")}) {
    ASSERT_EQ(lodestar_propose(program.handle(), setting, value), 0) << lodestar_last_error();
  }
  ASSERT_EQ(program.Start(), 0) << lodestar_last_error();
  EXPECT_STREQ(lodestar_job(program.handle(), "learning_rate"), "0.125");
  EXPECT_STREQ(lodestar_job(program.handle(), "batch_size"), "8") << "the operator's";
  ASSERT_EQ(program.Train(), 0) << lodestar_last_error();
  const std::vector<float> alone = DescendAlone(program.samples_, program.steps_, 0.125f);
  EXPECT_NEAR(program.heldout_loss_, HeldoutLossOf(alone), 1e-6) << "the servers' steps are so";
}

TEST(CApiTest, AServerThatIsStartedAgainGoesOnWithWhatWasProposed) {
  for (const bool has_journal : {true, false}) {
    SCOPED_TRACE(has_journal ? "from a journal" : "from a checkpoint");
    server::ServerConfig config = RegressionJob();
    config.job.schedule.total_rounds = 1000000;
    config.exit_when_done = false;
    config.durability.checkpoint_dir = testing::TempDir() + "/proposed";
    std::filesystem::remove_all(config.durability.checkpoint_dir);
    config.durability.checkpoint_every = has_journal ? 0 : 1;
    config.durability.has_journal = has_journal;
    config.durability.journal_dir = config.durability.checkpoint_dir + "/journal";
    ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
    Program first(cluster->address(), "first");
    ASSERT_EQ(lodestar_propose(first.handle(), "optimizer", "momentum"), 0);
    ASSERT_EQ(lodestar_propose(first.handle(), "learning_rate", "0.125"), 0);
    ASSERT_EQ(first.Start(), 0);
    lodestar_step step = {};
    step.size = sizeof(step);
    const auto train = [&](int rounds) {
      for (int i = 0; i < rounds; ++i) {
        ASSERT_EQ(lodestar_next(first.handle(), &step), 0) << lodestar_last_error();
        ASSERT_EQ(lodestar_step_done(first.handle(), 1.0, 0, step.num_samples), 0);
      }
    };
    const auto is_saved = [&] {
      const std::filesystem::directory_iterator entries(config.durability.checkpoint_dir);
      return std::any_of(begin(entries), end(entries), [](const auto& entry) {
        const std::string name = entry.path().filename();
        return name.starts_with("round-") && !name.ends_with(".tmp");
      });
    };
    do {
      train(5);
    } while (!has_journal && !is_saved());
    cluster->Stop(0, server::Server::StopKind::kImmediate);
    ASSERT_OK(cluster->StartAgain(0));
    train(3);
    EXPECT_GE(step.round, 3) << "it has begun anew";
    Program second(cluster->address(), "second");
    ASSERT_EQ(lodestar_propose(second.handle(), "learning_rate", "0.5"), 0);
    ASSERT_EQ(second.Start(), 0);
    EXPECT_STREQ(lodestar_job(second.handle(), "optimizer"), "momentum");
    EXPECT_STREQ(lodestar_job(second.handle(), "learning_rate"), "0.125");
  }
}

TEST(CApiTest, WhatCannotBeProposedIsSaid) {
  const OwnedWorker worker(lodestar_new());
  EXPECT_EQ(lodestar_propose(worker.get(), "rounds", "7"), 3);
  EXPECT_THAT(lodestar_last_error(), HasSubstr("'rounds' is not a setting that a program may"));
  EXPECT_EQ(lodestar_propose(worker.get(), "optimizer", "lion"), 3);
  EXPECT_THAT(lodestar_last_error(), HasSubstr("--optimizer=lion"));
  EXPECT_EQ(lodestar_propose(worker.get(), "momentum", "1"), 3);
  EXPECT_THAT(lodestar_last_error(), HasSubstr("--momentum=1 is out of range"));
  EXPECT_EQ(lodestar_propose(worker.get(), "momentum", nullptr), 3);
  const server::ServerConfig config = RegressionJob();
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  Program program(cluster->address(), "late");
  ASSERT_EQ(program.Start(), 0);
  EXPECT_EQ(lodestar_propose(program.handle(), "optimizer", "sgd"), 9);
}

TEST(CApiTest, WhatFailsIsSaid) {
  const OwnedWorker worker(lodestar_new());
  EXPECT_NE(lodestar_set(worker.get(), "coordinater", "x:1"), 0);
  EXPECT_THAT(lodestar_last_error(),
              HasSubstr("no setting 'coordinater'; the settings are: coordinator"));
  EXPECT_NE(lodestar_set(worker.get(), "name", "no spaces"), 0);
  EXPECT_NE(lodestar_set(worker.get(), "threads", "many"), 0);
  EXPECT_NE(lodestar_start(worker.get()), 0);
  EXPECT_THAT(lodestar_last_error(), HasSubstr("has no tensors"));
  EXPECT_NE(lodestar_allocate(worker.get()), 0);
  EXPECT_EQ(lodestar_parameters(worker.get()), nullptr);
  const int64_t shape[] = {2, 0};
  EXPECT_EQ(lodestar_add_tensor(worker.get(), "empty", shape, 2, 0, 0), 0);
  EXPECT_NE(lodestar_allocate(worker.get()), 0);
  EXPECT_THAT(lodestar_last_error(), HasSubstr("'empty'"));
  EXPECT_NE(lodestar_set_data(worker.get(), "", 0, 0, 1, 0), 0);
  lodestar_step step = {};
  EXPECT_NE(lodestar_next(worker.get(), &step), 0);
  EXPECT_THAT(lodestar_last_error(), HasSubstr("step.size is 0"));
  step.size = sizeof(step);
  EXPECT_NE(lodestar_next(worker.get(), &step), 0);
  EXPECT_THAT(lodestar_last_error(), HasSubstr("has not been started"));
  // Plain text must not go to another machine.
  Program far("203.0.113.1:50051", "far");
  EXPECT_NE(far.Start(), 0);
  EXPECT_THAT(lodestar_last_error(), HasSubstr("not encrypted"));
}

TEST(CApiTest, EveryFunctionRefusesANullWorker) {
  const int64_t shape[] = {1};
  lodestar_step step = {};
  step.size = sizeof(step);
  EXPECT_EQ(lodestar_set(nullptr, "name", "a"), 3);
  EXPECT_EQ(lodestar_propose(nullptr, "momentum", "0.9"), 3);
  EXPECT_EQ(lodestar_add_tensor(nullptr, "a", shape, 1, 0, 0), 3);
  EXPECT_EQ(lodestar_add_embedding(nullptr, "a", shape, 1, 0, 0), 3);
  EXPECT_EQ(lodestar_add_averaged(nullptr, "a", shape, 1, 0), 3);
  EXPECT_EQ(lodestar_set_data(nullptr, "", 1, 0, 1, 0), 3);
  EXPECT_EQ(lodestar_allocate(nullptr), 3);
  EXPECT_EQ(lodestar_parameters(nullptr), nullptr);
  EXPECT_EQ(lodestar_gradients(nullptr), nullptr);
  EXPECT_EQ(lodestar_num_elements(nullptr), 0);
  EXPECT_EQ(lodestar_offset(nullptr, "a"), -1);
  EXPECT_EQ(lodestar_num_blocks(nullptr), 0);
  EXPECT_EQ(lodestar_block(nullptr, "a"), -1);
  EXPECT_EQ(lodestar_start(nullptr), 3);
  EXPECT_EQ(lodestar_job(nullptr, "mode"), nullptr);
  EXPECT_EQ(lodestar_wait(nullptr, 0, 0), 1);
  EXPECT_EQ(lodestar_next(nullptr, &step), 3);
  EXPECT_EQ(lodestar_expect(nullptr, 1, &step), 3);
  EXPECT_EQ(lodestar_weights_version(nullptr), -1);
  EXPECT_EQ(lodestar_extend(nullptr, &step), 3);
  EXPECT_EQ(lodestar_round_pass(nullptr, nullptr), 3);
  EXPECT_EQ(lodestar_keep_samples(nullptr), 3);
  EXPECT_EQ(lodestar_set_learning_rate(nullptr, -1, 0.5), 3);
  float state = 0.0f;
  int64_t updates = 0;
  int is_newer = 0;
  EXPECT_EQ(lodestar_set_initial_state(nullptr, 1, &state, 0), 3);
  EXPECT_EQ(lodestar_pull_state(nullptr, 1, &state, &updates, &is_newer), 3);
  EXPECT_EQ(lodestar_keep_state(nullptr, 1), 3);
  EXPECT_EQ(lodestar_set_weight(nullptr, 1), 3);
  EXPECT_EQ(lodestar_block_ready(nullptr, 0), 3);
  EXPECT_EQ(lodestar_log(nullptr, "a", 1.0), 3);
  EXPECT_EQ(lodestar_step_done(nullptr, 0.0, 0, 0), 3);
  EXPECT_EQ(lodestar_step_skipped(nullptr), 3);
  EXPECT_EQ(lodestar_step_failed(nullptr, "why"), 3);
  EXPECT_STREQ(lodestar_state(nullptr), "");
  EXPECT_EQ(lodestar_stop(nullptr), 3);
  EXPECT_EQ(lodestar_leave(nullptr), 3);
  EXPECT_THAT(lodestar_last_error(), HasSubstr("lodestar_new()"));
  lodestar_free(nullptr);
}

// Runs calls of the C API in a process that was forked from that of `started`. Returns the number
// of the first wrong result. 0 means that all results are right.
int CodeOfForkedChild(lodestar_worker* started) {
  lodestar_step step = {};
  step.size = sizeof(step);
  if (lodestar_next(started, &step) != 9 || lodestar_leave(started) != 9) return 1;
  if (lodestar_parameters(started) == nullptr) return 2;
  lodestar_free(started);
  const OwnedWorker own(lodestar_new());
  const int64_t shape[] = {1};
  if (lodestar_add_tensor(own.get(), "a", shape, 1, 0, 0) != 0) return 3;
  if (lodestar_set_data(own.get(), "", 1, 0, 1, 0) != 0) return 4;
  return lodestar_start(own.get()) == 9 ? 0 : 5;
}

TEST(CApiTest, ARefusedForkedChildLeavesItsParentTraining) {
  const server::ServerConfig config = RegressionJob();
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  Program program(cluster->address(), "parent");
  ASSERT_EQ(program.Start(), 0) << lodestar_last_error();
  ASSERT_NE(lodestar_job(program.handle(), "mode"), nullptr);
  const pid_t child = fork();
  if (child == 0) _exit(CodeOfForkedChild(program.handle()));
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(program.Train(), 0) << lodestar_last_error();
}

TEST(CApiTest, ConnectTimeoutIsASetting) {
  const OwnedWorker worker(lodestar_new());
  EXPECT_EQ(lodestar_set(worker.get(), "connect_timeout", "0"), 0) << lodestar_last_error();
  EXPECT_EQ(lodestar_set(worker.get(), "connect_timeout", "soon"), 3);
  EXPECT_EQ(lodestar_set(worker.get(), "connect_timeout", "1ms"), 3);
  EXPECT_THAT(lodestar_last_error(), HasSubstr("connect_timeout=1ms"));
}

TEST(CApiTest, WhatCannotBeExpectedIsNothing) {
  const server::ServerConfig config = RegressionJob();
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  Program program(cluster->address(), "expecting");
  ASSERT_EQ(program.Start(), 0);
  lodestar_step step = {};
  EXPECT_EQ(lodestar_expect(program.handle(), 1, &step), 3);
  step.size = sizeof(step);
  EXPECT_EQ(lodestar_expect(program.handle(), 0, &step), 3);
  EXPECT_EQ(lodestar_expect(program.handle(), 1, &step), 0);
  EXPECT_EQ(step.num_samples, 0);
  ASSERT_EQ(lodestar_next(program.handle(), &step), 0) << lodestar_last_error();
  EXPECT_EQ(lodestar_expect(program.handle(), 1, &step), 0);
  EXPECT_EQ(step.num_samples, 8);
  EXPECT_EQ(lodestar_step_done(program.handle(), 1.0, 0, 1), 0);
  EXPECT_EQ(lodestar_expect(program.handle(), 1, &step), 0);
  EXPECT_EQ(step.num_samples, 0);
  EXPECT_EQ(program.Train(), 0);
}

TEST(CApiTest, AFailedStepEndsTheWorkerWithItsReason) {
  server::ServerConfig config = RegressionJob();
  ASSERT_OK_AND_ASSIGN(const auto cluster, InProcessCluster::Start(config, 1));
  Program program(cluster->address(), "failing");
  ASSERT_EQ(program.Start(), 0);
  lodestar_step step = {};
  step.size = sizeof(step);
  ASSERT_EQ(lodestar_next(program.handle(), &step), 0) << lodestar_last_error();
  EXPECT_NE(lodestar_block_ready(program.handle(), 2), 0);
  EXPECT_THAT(lodestar_last_error(), HasSubstr("blocks 0 to 1"));
  EXPECT_NE(lodestar_next(program.handle(), &step), 0);
  EXPECT_THAT(lodestar_last_error(), HasSubstr("the last step is not finished"));
  EXPECT_EQ(lodestar_step_failed(program.handle(), "out of memory"), 0);
  EXPECT_NE(lodestar_next(program.handle(), &step), 0);
  EXPECT_THAT(lodestar_last_error(), HasSubstr("out of memory"));
}

}  // namespace
}  // namespace lodestar
