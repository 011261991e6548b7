// SPDX-License-Identifier: Apache-2.0

// Compares different ways to run a job that must train the same model: DESIGN.md, section 4. Each
// test runs real jobs, with real servers, workers, models and data, and compares their final
// weights.
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/job/job_spec.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/training_data.h"
#include "tests/cluster/training_reference.h"
#include "tests/cluster/training_run.h"
#include "worker/data/testing/test_folder.h"

namespace lodestar {
namespace {

using ::testing::Not;

// Tolerance if sums are formed in another order. A sum of N fp32 terms has an error of some units
// of 6e-8 per step. Over a short training these errors partly cancel, relative to the norm of all
// weights.
constexpr double kReordered = 1e-6;
// Minimum distance that a training must move the weights. After a shorter one, a broken update
// could look right.
constexpr double kMoved = 1e-2;

MATCHER_P(HasTheBitsOf, other, negation ? "differs in some bit" : "is the same to the bit") {
  if (arg.size() != other.size()) {
    *result_listener << arg.size() << " elements instead of " << other.size();
    return false;
  }
  size_t num_different = 0;
  for (size_t i = 0; i < arg.size(); ++i) {
    num_different += std::bit_cast<uint32_t>(arg[i]) != std::bit_cast<uint32_t>(other[i]);
  }
  *result_listener << num_different << " of " << arg.size() << " elements differ, distance "
                   << RelativeDistance(arg, other);
  return num_different == 0;
}

MATCHER_P2(IsWithin, tolerance, other, "is close") {
  if (arg.size() != other.size()) {
    *result_listener << arg.size() << " elements instead of " << other.size();
    return false;
  }
  const double distance = RelativeDistance(arg, other);
  *result_listener << "relative distance " << distance;
  return distance <= tolerance;
}

// Every setting that changes the arithmetic is on. Buckets are small, so that every block has
// several. The clip norm lies among the norms that occur: if every round were clipped, the length
// of the gradient would not matter.
job::JobSpec Job(const params::ModelSpec& model) {
  job::JobSpec job;
  job.model = model;
  job.optimizer.kind = job::OptimizerKind::kAdamW;
  job.optimizer.weight_decay = 0.1;
  job.schedule = {.kind = job::ScheduleKind::kCosine,
                  .peak = 2e-3,
                  .minimum = 1e-4,
                  .warmup_rounds = 3,
                  .total_rounds = 20};
  job.clip_norm = 1.1;
  job.batch_size = 8;
  job.seed = 3;
  job.bucket_bytes = 1024;
  return job;
}

params::ModelSpec Mlp() {
  return {"mlp", params::MlpSpec{{kImageSide * kImageSide, 32, 16, kImageClasses}}};
}
params::ModelSpec Cnn() {
  return {"cnn", params::CnnSpec{kImageSide, kImageSide, 1, {4, 8}, 16, kImageClasses}};
}
params::ModelSpec Gpt() { return {"gpt", params::GptSpec{2, 2, 16, 16, 256}}; }

void UseMomentum(job::JobSpec& job, double learning_rate) {
  job.optimizer.kind = job::OptimizerKind::kMomentum;
  job.schedule.peak = learning_rate;
}

void UseLocalSteps(job::JobSpec& job, int local_steps, job::OuterOptimizerKind outer) {
  job.mode = job::Mode::kLocalSgd;
  job.local_steps = local_steps;
  job.outer_optimizer = outer;
}

class TrainingIdentitiesTest : public testing::Test {
 protected:
  TrainingIdentitiesTest() {
    WriteImages(images_);
    WriteText(text_);
  }

  TrainingSetup ImageSetup(const params::ModelSpec& model = Mlp()) {
    return {.job = Job(model), .data = images_.root()};
  }

  // Compares batches of 8 on one worker with batches of 4 on each of two workers.
  void ExpectSplitBatchesAgree(const TrainingSetup& whole) {
    TrainingSetup halves = whole;
    halves.num_workers = 2;
    halves.job.batch_size /= 2;
    ASSERT_OK_AND_ASSIGN(const std::vector<float> initial, InitialWeights(whole.job));
    ASSERT_OK_AND_ASSIGN(const std::vector<float> by_one, RunTraining(whole));
    ASSERT_OK_AND_ASSIGN(const std::vector<float> by_two, RunTraining(halves));
    EXPECT_THAT(by_two, IsWithin(kReordered, by_one));
    EXPECT_THAT(by_one, Not(IsWithin(kMoved, initial)));
  }

  // Compares the job with the reference, which clips, and checks that clipping made a difference.
  void ExpectPlainTraining(const TrainingSetup& setup) {
    ASSERT_OK_AND_ASSIGN(const std::vector<float> initial, InitialWeights(setup.job));
    ASSERT_OK_AND_ASSIGN(const std::vector<float> plain, TrainSequentially(setup.job, setup.data));
    job::JobSpec unclipped_job = setup.job;
    unclipped_job.clip_norm = 0.0;
    ASSERT_OK_AND_ASSIGN(const std::vector<float> unclipped,
                         TrainSequentially(unclipped_job, setup.data));
    ASSERT_OK_AND_ASSIGN(const std::vector<float> trained, RunTraining(setup));
    EXPECT_THAT(trained, HasTheBitsOf(plain));
    EXPECT_THAT(plain, Not(IsWithin(kReordered, unclipped)));
    EXPECT_THAT(plain, Not(IsWithin(kMoved, initial)));
  }

  // `direct` has one worker. Compares it with a site that has one worker and takes its place.
  void ExpectASiteIsItsWorker(const TrainingSetup& direct) {
    TrainingSetup by_site = direct;
    by_site.num_workers = 0;
    by_site.sites = {1};
    ASSERT_OK_AND_ASSIGN(const std::vector<float> initial, InitialWeights(direct.job));
    ASSERT_OK_AND_ASSIGN(const std::vector<float> expected, RunTraining(direct));
    EXPECT_THAT(RunTraining(by_site), IsOkAndHolds(HasTheBitsOf(expected)));
    EXPECT_THAT(expected, Not(IsWithin(kMoved, initial)));
  }

  // Compares one worker with two and four workers that all contribute the same.
  void ExpectEqualWorkersAreOne(const job::JobSpec& job) {
    const data::TestFolder equal_images;
    WriteEqualImages(equal_images);
    TrainingSetup setup = {.job = job, .data = equal_images.root(), .own_partition = true};
    ASSERT_OK_AND_ASSIGN(const std::vector<float> initial, InitialWeights(job));
    ASSERT_OK_AND_ASSIGN(const std::vector<float> by_one, RunTraining(setup));
    EXPECT_THAT(by_one, Not(IsWithin(kMoved, initial)));
    for (const int num_workers : {2, 4}) {
      setup.num_workers = num_workers;
      ASSERT_OK_AND_ASSIGN(const std::vector<float> by_many, RunTraining(setup));
      EXPECT_THAT(by_many, HasTheBitsOf(by_one)) << num_workers << " workers";
    }
  }

  const data::TestFolder images_;
  const data::TestFolder text_;
};

// The result must be the same however the measured speeds divide the batch.
TEST_F(TrainingIdentitiesTest, BySpeedIsTheSameTrainingAsInEqualParts) {
  TrainingSetup equal = ImageSetup();
  equal.num_workers = 3;
  equal.job.batch_size = 0;
  equal.job.global_batch_size = 16;
  // The gradient of a part with one sample may be ten times as long as usual, and must not be
  // refused.
  equal.job.norm_limit = 0;
  TrainingSetup by_speed = equal;
  by_speed.job.balance = job::Balance::kSpeed;
  ASSERT_OK_AND_ASSIGN(const std::vector<float> initial, InitialWeights(equal.job));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> expected, RunTraining(equal));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> trained, RunTraining(by_speed));
  EXPECT_THAT(trained, IsWithin(kReordered, expected));
  EXPECT_THAT(expected, Not(IsWithin(kMoved, initial)));
}

TEST_F(TrainingIdentitiesTest, ASiteWithOneWorkerIsThatWorker) {
  for (const job::OuterOptimizerKind outer :
       {job::OuterOptimizerKind::kAverage, job::OuterOptimizerKind::kNesterov}) {
    TrainingSetup direct = ImageSetup();
    UseLocalSteps(direct.job, 3, outer);
    direct.job.schedule.total_rounds = 8;
    direct.job.eval_every = 3;
    ExpectASiteIsItsWorker(direct);
  }
}

TEST_F(TrainingIdentitiesTest, ASiteWithOneWorkerIsThatWorkerWhereExchangesOverlap) {
  const auto expect_same = [this](absl::FunctionRef<void(job::JobSpec&)> overlap) {
    TrainingSetup direct = ImageSetup();
    UseLocalSteps(direct.job, 6, job::OuterOptimizerKind::kNesterov);
    direct.job.schedule.total_rounds = 9;
    direct.job.eval_every = 4;
    overlap(direct.job);
    ExpectASiteIsItsWorker(direct);
  };
  expect_same([](job::JobSpec& job) { job.overlap_steps = 4; });
  expect_same([](job::JobSpec& job) {
    job.overlap_steps = 6;
    job.merge = job::MergeKind::kMix;
  });
  expect_same([](job::JobSpec& job) {
    job.fragments = 3;
    job.overlap_steps = 1;
    job.push_encoding = params::Encoding::kInt4;
  });
  expect_same([](job::JobSpec& job) { job.overlap_rounds = true; });
  expect_same([](job::JobSpec& job) { job.outer_optimizer = job::OuterOptimizerKind::kEasgd; });
}

TEST_F(TrainingIdentitiesTest, ASiteBelowASiteWithOneWorkerIsThatWorker) {
  TrainingSetup direct = ImageSetup();
  UseLocalSteps(direct.job, 4, job::OuterOptimizerKind::kNesterov);
  direct.job.schedule.total_rounds = 6;
  TrainingSetup below = direct;
  below.num_workers = 0;
  below.sites = {1};
  below.steps_of_upper_sites = 2;
  ASSERT_OK_AND_ASSIGN(const std::vector<float> expected, RunTraining(direct));
  EXPECT_THAT(RunTraining(below), IsOkAndHolds(HasTheBitsOf(expected)));
}

// A site must carry over what encoding loses, like any worker.
TEST_F(TrainingIdentitiesTest, ASiteWithOneWorkerIsThatWorkerWhereExchangesAreEncoded) {
  TrainingSetup direct = ImageSetup();
  UseLocalSteps(direct.job, 2, job::OuterOptimizerKind::kNesterov);
  direct.job.mode = job::Mode::kAsyncLocalSgd;
  direct.job.schedule.total_rounds = 8;
  direct.job.push_encoding = params::Encoding::kInt4;
  direct.job.pull_encoding = params::Encoding::kInt8;
  ExpectASiteIsItsWorker(direct);
}

TEST_F(TrainingIdentitiesTest, SitesThatAreAveragedAfterEverySgdStepAreOneSync) {
  TrainingSetup flat = ImageSetup();
  flat.num_workers = 4;
  flat.job.batch_size = 2;
  flat.job.clip_norm = 0.0;
  flat.job.optimizer.kind = job::OptimizerKind::kSgd;
  flat.job.schedule.peak = 0.1;
  ASSERT_OK_AND_ASSIGN(const std::vector<float> initial, InitialWeights(flat.job));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> sync, RunTraining(flat));
  TrainingSetup by_sites = flat;
  UseLocalSteps(by_sites.job, 1, job::OuterOptimizerKind::kAverage);
  by_sites.job.batch_size = 4;
  by_sites.num_workers = 0;
  by_sites.sites = {2, 2};
  ASSERT_OK_AND_ASSIGN(const std::vector<float> averaged, RunTraining(by_sites));
  EXPECT_THAT(averaged, IsWithin(kReordered, sync));
  EXPECT_THAT(sync, Not(IsWithin(kMoved, initial)));
}

TEST_F(TrainingIdentitiesTest, ASiteOfTwoWorkersBesideAWorkerIsOneMoreWorker) {
  TrainingSetup direct = ImageSetup();
  UseMomentum(direct.job, 0.05);
  UseLocalSteps(direct.job, 3, job::OuterOptimizerKind::kNesterov);
  direct.job.schedule.total_rounds = 8;
  direct.num_workers = 2;
  TrainingSetup by_site = direct;
  by_site.num_workers = 1;
  by_site.sites = {2};
  ASSERT_OK_AND_ASSIGN(const std::vector<float> initial, InitialWeights(direct.job));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> expected, RunTraining(direct));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> trained, RunTraining(by_site));
  EXPECT_THAT(trained, IsWithin(kReordered, expected));
  EXPECT_THAT(expected, Not(IsWithin(kMoved, initial)));
}

TEST_F(TrainingIdentitiesTest, AsyncLocalSgdWithOneWorkerIsLocalSgd) {
  TrainingSetup together = ImageSetup();
  UseMomentum(together.job, 0.05);
  UseLocalSteps(together.job, 3, job::OuterOptimizerKind::kNesterov);
  TrainingSetup alone = together;
  alone.job.mode = job::Mode::kAsyncLocalSgd;
  ASSERT_OK_AND_ASSIGN(const std::vector<float> initial, InitialWeights(together.job));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> expected, RunTraining(together));
  EXPECT_THAT(RunTraining(alone), IsOkAndHolds(HasTheBitsOf(expected)));
  EXPECT_THAT(expected, Not(IsWithin(kMoved, initial)));
  // With one worker, no other contribution comes between, so the anchor makes no difference.
  alone.job.anchor = job::Anchor::kServer;
  EXPECT_THAT(RunTraining(alone), IsOkAndHolds(HasTheBitsOf(expected)));
}

TEST_F(TrainingIdentitiesTest, SyncWithOneWorkerIsPlainTraining) {
  ExpectPlainTraining(ImageSetup());
}

TEST_F(TrainingIdentitiesTest, SyncOfTwoWorkersIsOneWithTwiceTheBatch) {
  ExpectSplitBatchesAgree(ImageSetup());
}

TEST_F(TrainingIdentitiesTest, SyncOfTwoWorkersIsOneWithTwiceTheBatchForCnn) {
  ExpectSplitBatchesAgree(ImageSetup(Cnn()));
}

// AdamW is not tested here. The exact gradient of a key's bias is zero, and AdamW makes full-size
// steps out of the rounding errors.
TEST_F(TrainingIdentitiesTest, SyncOfTwoWorkersIsOneWithTwiceTheBatchForGpt) {
  TrainingSetup setup = {.job = Job(Gpt()), .data = text_.root()};
  UseMomentum(setup.job, 0.1);
  ExpectSplitBatchesAgree(setup);
}

// Dropout depends on the place of a sample, not on the worker that computes it.
TEST_F(TrainingIdentitiesTest, SyncOfTwoWorkersIsOneWithTwiceTheBatchWithDropout) {
  params::ModelSpec model = Gpt();
  std::get<params::GptSpec>(model.architecture).dropout = 0.2;
  TrainingSetup setup = {.job = Job(model), .data = text_.root()};
  UseMomentum(setup.job, 0.1);
  ExpectSplitBatchesAgree(setup);
}

TEST_F(TrainingIdentitiesTest, SamplesOfRoundDoNotDependOnNumberOfWorkers) {
  TrainingSetup setup = ImageSetup();
  setup.job.batch_size = 0;
  setup.job.global_batch_size = 8;
  ASSERT_OK_AND_ASSIGN(const std::vector<float> by_one, RunTraining(setup));
  setup.num_workers = 3;  // in parts of 3, 3 and 2 samples
  ASSERT_OK_AND_ASSIGN(const std::vector<float> by_three, RunTraining(setup));
  EXPECT_THAT(by_three, IsWithin(kReordered, by_one));
}

TEST_F(TrainingIdentitiesTest, SyncGivesTheSameBitsAgain) {
  TrainingSetup setup = ImageSetup();
  setup.num_workers = 3;
  ASSERT_OK_AND_ASSIGN(const std::vector<float> first, RunTraining(setup));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> second, RunTraining(setup));
  EXPECT_THAT(second, HasTheBitsOf(first));
}

TEST_F(TrainingIdentitiesTest, NumberOfServersChangesNoBit) {
  TrainingSetup setup = ImageSetup();
  setup.num_workers = 2;
  ASSERT_OK_AND_ASSIGN(const std::vector<float> of_one, RunTraining(setup));
  for (const int num_servers : {2, 3}) {
    setup.num_servers = num_servers;
    ASSERT_OK_AND_ASSIGN(const std::vector<float> of_many, RunTraining(setup));
    EXPECT_THAT(of_many, HasTheBitsOf(of_one)) << num_servers << " servers";
  }
}

TEST_F(TrainingIdentitiesTest, AsyncWithOneWorkerIsSequentialSgd) {
  TrainingSetup setup = ImageSetup();
  setup.job.mode = job::Mode::kAsync;
  UseMomentum(setup.job, 0.05);
  ExpectPlainTraining(setup);
}

TEST_F(TrainingIdentitiesTest, AsyncWithOneWorkerIsSequentialSgdAcrossServers) {
  TrainingSetup setup = {.job = Job(Gpt()), .data = text_.root(), .num_servers = 2};
  setup.job.mode = job::Mode::kAsync;
  UseMomentum(setup.job, 0.1);
  ExpectPlainTraining(setup);
}

TEST_F(TrainingIdentitiesTest, AsyncWithoutRoundsAheadIsSync) {
  TrainingSetup setup = ImageSetup();
  setup.num_workers = 2;
  ASSERT_OK_AND_ASSIGN(const std::vector<float> sync, RunTraining(setup));
  setup.job.mode = job::Mode::kAsync;
  setup.job.max_rounds_ahead = 0;
  ASSERT_OK_AND_ASSIGN(const std::vector<float> lock_step, RunTraining(setup));
  EXPECT_THAT(lock_step, HasTheBitsOf(sync));
}

TEST_F(TrainingIdentitiesTest, AveragingAfterEverySgdStepIsSync) {
  TrainingSetup setup = ImageSetup();
  setup.num_workers = 2;
  // with local steps gradients are clipped before averaging, in sync after it
  setup.job.clip_norm = 0.0;
  setup.job.optimizer.kind = job::OptimizerKind::kSgd;
  setup.job.schedule.peak = 0.1;
  ASSERT_OK_AND_ASSIGN(const std::vector<float> initial, InitialWeights(setup.job));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> sync, RunTraining(setup));
  UseLocalSteps(setup.job, 1, job::OuterOptimizerKind::kAverage);
  ASSERT_OK_AND_ASSIGN(const std::vector<float> averaged, RunTraining(setup));
  EXPECT_THAT(averaged, IsWithin(kReordered, sync));
  EXPECT_THAT(sync, Not(IsWithin(kMoved, initial)));
}

TEST_F(TrainingIdentitiesTest, LocalStepsOfOneWorkerArePlainTraining) {
  TrainingSetup setup = ImageSetup();
  UseLocalSteps(setup.job, 3, job::OuterOptimizerKind::kAverage);
  setup.job.schedule.total_rounds = 8;
  ExpectPlainTraining(setup);
}

TEST_F(TrainingIdentitiesTest, OuterNesterovWithoutMomentumAndSgdAreAverage) {
  TrainingSetup setup = ImageSetup();
  setup.num_workers = 2;
  setup.job.schedule.total_rounds = 8;
  UseLocalSteps(setup.job, 3, job::OuterOptimizerKind::kAverage);
  ASSERT_OK_AND_ASSIGN(const std::vector<float> average, RunTraining(setup));
  setup.job.outer_optimizer = job::OuterOptimizerKind::kNesterov;
  setup.job.outer_learning_rate = 1.0;
  setup.job.outer_momentum = 0.0;
  ASSERT_OK_AND_ASSIGN(const std::vector<float> nesterov, RunTraining(setup));
  EXPECT_THAT(nesterov, IsWithin(kReordered, average));
  setup.job.outer_optimizer = job::OuterOptimizerKind::kSgd;
  ASSERT_OK_AND_ASSIGN(const std::vector<float> sgd, RunTraining(setup));
  EXPECT_THAT(sgd, IsWithin(kReordered, average));
}

TEST_F(TrainingIdentitiesTest, ElasticAveragingIsThatOfItsPaper) {
  for (const int num_workers : {1, 2, 3}) {
    TrainingSetup setup = ImageSetup();
    UseMomentum(setup.job, 0.05);
    UseLocalSteps(setup.job, 3, job::OuterOptimizerKind::kEasgd);
    setup.job.outer_learning_rate = 0.9;
    setup.job.schedule.total_rounds = 8;
    setup.num_workers = num_workers;
    setup.num_servers = num_workers;
    ASSERT_OK_AND_ASSIGN(const std::vector<float> initial, InitialWeights(setup.job));
    ASSERT_OK_AND_ASSIGN(const std::vector<float> expected,
                         TrainElastically(setup.job, setup.data, num_workers));
    EXPECT_THAT(RunTraining(setup), IsOkAndHolds(IsWithin(kReordered, expected)))
        << num_workers << " workers";
    EXPECT_THAT(expected, Not(IsWithin(kMoved, initial)));
  }
}

TEST_F(TrainingIdentitiesTest, ElasticFragmentsGiveTheSameBitsAgain) {
  TrainingSetup setup = ImageSetup();
  UseLocalSteps(setup.job, 4, job::OuterOptimizerKind::kEasgd);
  setup.job.schedule.total_rounds = 12;
  setup.job.fragments = 2;
  setup.job.push_encoding = params::Encoding::kInt4;
  setup.job.pull_encoding = params::Encoding::kInt4;
  setup.num_workers = 2;
  setup.num_servers = 2;
  ASSERT_OK_AND_ASSIGN(const std::vector<float> initial, InitialWeights(setup.job));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> first, RunTraining(setup));
  EXPECT_THAT(RunTraining(setup), IsOkAndHolds(HasTheBitsOf(first)));
  EXPECT_THAT(first, Not(IsWithin(kMoved, initial)));
}

TEST_F(TrainingIdentitiesTest, MeanDirectionsOfEqualWorkersAreThoseOfOne) {
  job::JobSpec job = Job(Mlp());
  job.schedule.total_rounds = 8;
  UseLocalSteps(job, 3, job::OuterOptimizerKind::kNesterov);
  job.outer_reduction = job::OuterReduction::kDirection;
  const data::TestFolder equal_images;
  WriteEqualImages(equal_images);
  TrainingSetup setup = {.job = job, .data = equal_images.root(), .own_partition = true};
  ASSERT_OK_AND_ASSIGN(const std::vector<float> initial, InitialWeights(job));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> by_one, RunTraining(setup));
  EXPECT_THAT(by_one, Not(IsWithin(kMoved, initial)));
  setup.num_workers = 2;
  // Mean directions need roots and quotients, which round.
  EXPECT_THAT(RunTraining(setup), IsOkAndHolds(IsWithin(kReordered, by_one)));
  setup.job.outer_reduction = job::OuterReduction::kMean;
  EXPECT_THAT(RunTraining(setup), IsOkAndHolds(HasTheBitsOf(by_one)));
}

TEST_F(TrainingIdentitiesTest, EqualWorkersInSyncAreOne) { ExpectEqualWorkersAreOne(Job(Mlp())); }

TEST_F(TrainingIdentitiesTest, AverageOfEqualWorkersIsOne) {
  job::JobSpec job = Job(Mlp());
  job.schedule.total_rounds = 8;
  UseLocalSteps(job, 3, job::OuterOptimizerKind::kAverage);
  ExpectEqualWorkersAreOne(job);
}

// With buckets of 1 KiB the mlp has at least three buckets.
void UseFragments(job::JobSpec& job, int overlap_steps) {
  UseLocalSteps(job, 4, job::OuterOptimizerKind::kNesterov);
  job.outer_learning_rate = 0.7;
  job.outer_momentum = 0.6;
  job.schedule.total_rounds = 12;
  job.fragments = 2;
  job.overlap_steps = overlap_steps;
}

TEST_F(TrainingIdentitiesTest, FragmentsOfEqualWorkersAreThoseOfOne) {
  for (const job::MergeKind merge : {job::MergeKind::kMix, job::MergeKind::kKeep}) {
    job::JobSpec job = Job(Mlp());
    UseFragments(job, /*overlap_steps=*/1);
    job.merge = merge;
    ExpectEqualWorkersAreOne(job);
  }
}

TEST_F(TrainingIdentitiesTest, FragmentsGiveTheSameBitsAgain) {
  TrainingSetup setup = ImageSetup();
  UseFragments(setup.job, /*overlap_steps=*/2);
  setup.num_workers = 2;
  setup.num_servers = 2;
  setup.job.push_encoding = params::Encoding::kInt4;
  setup.job.pull_encoding = params::Encoding::kInt4;
  ASSERT_OK_AND_ASSIGN(const std::vector<float> initial, InitialWeights(setup.job));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> first, RunTraining(setup));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> second, RunTraining(setup));
  EXPECT_THAT(second, HasTheBitsOf(first));
  EXPECT_THAT(first, Not(IsWithin(kMoved, initial)));
}

TEST_F(TrainingIdentitiesTest, OneEagerWorkerIsLocalSgd) {
  TrainingSetup setup = ImageSetup();
  UseMomentum(setup.job, 0.02);
  UseFragments(setup.job, 0);
  setup.job.fragments = 1;
  setup.job.overlap_rounds = true;
  // The work of one grant is contributed to the next round, so the last round needs one more.
  ++setup.job.schedule.total_rounds;
  setup.job.schedule.kind = job::ScheduleKind::kConstant;
  TrainingSetup plain = setup;
  plain.job.overlap_rounds = false;
  --plain.job.schedule.total_rounds;
  ASSERT_OK_AND_ASSIGN(const std::vector<float> by_plain, RunTraining(plain));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> by_eager, RunTraining(setup));
  // The eager worker computes the servers' momentum itself, which rounds.
  EXPECT_THAT(by_eager, IsWithin(1e-5, by_plain));
}

}  // namespace
}  // namespace lodestar
