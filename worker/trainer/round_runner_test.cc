// SPDX-License-Identifier: Apache-2.0

// Tests of whole rounds of one worker with a parameter server in memory. The same bits must result
// on the CPU and on a device with its own memory and streams, in every mode, and with and without
// transfers that overlap.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/runtime/file_io.h"
#include "common/storage/file_system.h"
#include "common/testing/simulated_clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/factory/device_factory.h"
#include "worker/trainer/inner_state_store.h"
#include "worker/trainer/round_runner_factory.h"
#include "worker/trainer/testing/delayed_device.h"
#include "worker/trainer/testing/training_rig.h"
#include "worker/trainer/weights_pull.h"

namespace lodestar::trainer {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::Not;

job::JobSpec Job(job::Mode mode) {
  job::JobSpec job;
  job.mode = mode;
  return job;
}

job::JobSpec SyncJob() { return Job(job::Mode::kSync); }

job::JobSpec ClippingJob() {
  job::JobSpec job = Job(job::Mode::kAsync);
  job.clip_norm = 0.05;
  return job;
}

job::JobSpec AverageJob() {
  job::JobSpec job = Job(job::Mode::kLocalSgd);
  job.local_steps = 3;
  job.outer_optimizer = job::OuterOptimizerKind::kAverage;
  return job;
}

job::JobSpec PseudoGradientJob() {
  job::JobSpec job = AverageJob();
  job.outer_optimizer = job::OuterOptimizerKind::kNesterov;
  job.optimizer.kind = job::OptimizerKind::kMomentum;
  job.clip_norm = 0.05;
  return job;
}

// Returns a job whose gradients are clipped and encoded, with error feedback.
job::JobSpec EncodedClippingJob() {
  job::JobSpec job = ClippingJob();
  job.push_encoding = params::Encoding::kBf16;
  return job;
}

job::JobSpec EncodedAverageJob() {
  job::JobSpec job = AverageJob();
  job.push_encoding = params::Encoding::kInt8;
  return job;
}

class RoundRunnerTest : public ::testing::TestWithParam<job::JobSpec (*)()> {};

INSTANTIATE_TEST_SUITE_P(Jobs, RoundRunnerTest,
                         ::testing::Values(&SyncJob, &ClippingJob, &AverageJob, &PseudoGradientJob,
                                           &EncodedClippingJob, &EncodedAverageJob));

TEST_P(RoundRunnerTest, StreamsAndOverlapChangeNoBit) {
  const job::JobSpec job = GetParam()();
  const auto cpu = *factory::MakeDevice("cpu", 1, nullptr);
  const TrainingOutcome expected = TrainThreeRounds(job, cpu.get(), /*overlap=*/true);
  EXPECT_NE(expected.weights, TrainingRig(job, cpu.get(), /*overlap=*/true).server().weights());
  EXPECT_EQ(TrainThreeRounds(job, cpu.get(), /*overlap=*/false), expected);
  for (const auto order : {DelayedDevice::Order::kLate, DelayedDevice::Order::kCopiesFirst}) {
    for (const bool overlap : {true, false}) {
      DelayedDevice device(order);
      EXPECT_EQ(TrainThreeRounds(job, &device, overlap), expected)
          << "order " << static_cast<int>(order) << " overlap " << overlap;
    }
  }
}

TEST_P(RoundRunnerTest, AFailureOfTheDeviceEndsTheRoundWhereverItHappens) {
  const job::JobSpec job = GetParam()();
  for (const kernels::StreamKind stream :
       {kernels::StreamKind::kCompute, kernels::StreamKind::kDeviceToHost,
        kernels::StreamKind::kHostToDevice}) {
    for (const int count : {1, 2, 7}) {
      DelayedDevice device(DelayedDevice::Order::kLate);
      TrainingRig training(job, &device, /*overlap=*/true);
      ASSERT_OK(training.RunRound(0));
      device.FailAt(stream, count);
      absl::Status status = training.RunRound(1).status();
      // If round 1 does not wait for the work that fails, a later round returns the error.
      if (status.ok()) status = training.RunRound(2).status();
      if (status.ok()) status = training.RunRound(3).status();
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, HasSubstr("made to fail")))
          << "stream " << static_cast<int>(stream) << " count " << count;
    }
  }
}

TEST_P(RoundRunnerTest, AnErrorOfThisMachineIsFinalWhateverItsCodePromises) {
  const auto cpu = *factory::MakeDevice("cpu", 1, nullptr);
  TrainingRig training(GetParam()(), cpu.get(), /*overlap=*/true);
  training.FailReading(absl::ResourceExhaustedError("no descriptors are left"));
  EXPECT_THAT(training.RunRound(0), StatusIs(absl::StatusCode::kFailedPrecondition,
                                             HasSubstr("no descriptors are left")));
}

TEST_P(RoundRunnerTest, TheEndOfALifeEndsWhatItEvaluates) {
  const auto cpu = *factory::MakeDevice("cpu", 1, nullptr);
  TrainingRig training(GetParam()(), cpu.get(), /*overlap=*/true);
  ASSERT_OK(training.RunRound(0));
  training.EndLife();
  EXPECT_THAT(training.RunRound(1), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(training.server().version(), Version(1));
}

TEST_P(RoundRunnerTest, EvaluationEndsBetweenPassesWhenTheWorkerIsToldToStop) {
  const auto cpu = *factory::MakeDevice("cpu", 1, nullptr);
  TrainingRig training(GetParam()(), cpu.get(), /*overlap=*/true);
  ASSERT_OK(training.RunRound(0));
  int passes = 0;
  bool is_evaluating = true;
  training.on_activity_ = [&](absl::string_view activity) {
    if (activity == "push") is_evaluating = false;
  };
  training.on_step_ = [&](const RoundStep& step) {
    if (step.samples.count == 0 && is_evaluating && ++passes == 1) training.RequestStop();
  };
  const auto report = training.RunRound(1);
  ASSERT_OK(report);
  EXPECT_EQ(passes, 1);
  EXPECT_EQ(report->heldout_predictions, 0) << "a part is no result";
  EXPECT_EQ(report->heldout_loss_sum, 0.0);
  EXPECT_GT(report->num_samples, 0) << "the step at hand is handed in";
  EXPECT_THAT(training.RunRound(1, messages::Grant::Kind::kEvaluate),
              StatusIs(absl::StatusCode::kCancelled));
}

TEST_P(RoundRunnerTest, ARoundWhoseAcknowledgementWasLostIsPushedAgainNotComputedAgain) {
  const auto cpu = *factory::MakeDevice("cpu", 1, nullptr);
  const TrainingOutcome expected = TrainThreeRounds(GetParam()(), cpu.get(), /*overlap=*/true);
  for (const absl::StatusCode code :
       {absl::StatusCode::kCancelled, absl::StatusCode::kAborted, absl::StatusCode::kUnimplemented,
        absl::StatusCode::kUnavailable}) {
    for (const bool is_counted : {false, true}) {
      TrainingRig training(GetParam()(), cpu.get(), /*overlap=*/true);
      TrainingOutcome outcome;
      for (int64_t round = 0; round < 3; ++round) {
        training.server().push_failure_ = absl::Status(code, "the answer is damaged");
        training.server().counts_before_failing_ = is_counted;
        absl::StatusOr<messages::RoundReport> report = training.RunRound(round);
        if (code != absl::StatusCode::kUnavailable) {
          EXPECT_THAT(report, StatusIs(code));
          report = training.RunRound(round);
        }
        ASSERT_OK(report);
        outcome.losses.push_back(report->loss_sum);
        outcome.losses.push_back(report->heldout_loss_sum);
      }
      outcome.weights = training.server().weights();
      EXPECT_EQ(outcome, expected) << absl::StatusCodeToString(code) << " counted " << is_counted;
    }
  }
}

TEST_P(RoundRunnerTest, ARoundThatCountsBeforeItsAcknowledgementIsHereIsSettledByTheNext) {
  const auto cpu = *factory::MakeDevice("cpu", 1, nullptr);
  const TrainingOutcome expected = TrainThreeRounds(GetParam()(), cpu.get(), /*overlap=*/true);
  TrainingRig training(GetParam()(), cpu.get(), /*overlap=*/true);
  training.server().counts_before_failing_ = true;
  training.on_contributed_ = [&](const messages::RoundReport& report) {
    if (report.round == Round(2)) return;
    training.server().push_failure_ = absl::AbortedError("the answer is damaged");
  };
  for (int64_t round = 0; round < 3; ++round) {
    const absl::Status ran = training.RunRound(round).status();
    EXPECT_EQ(ran.ok(), round == 2) << ran;
  }
  EXPECT_EQ(training.server().weights(), expected.weights);
}

TEST_P(RoundRunnerTest, WhatAnotherLifeHasMadeIsNotPushed) {
  const auto cpu = *factory::MakeDevice("cpu", 1, nullptr);
  TrainingRig training(GetParam()(), cpu.get(), /*overlap=*/true);
  training.server().push_failure_ = absl::AbortedError("lease is over");
  EXPECT_THAT(training.RunRound(0), StatusIs(absl::StatusCode::kAborted));
  training.server().BeginAnotherLife();
  int num_pulls = 0;
  training.server().on_pull_ = [&] { ++num_pulls; };
  ASSERT_OK(training.RunRound(0));
  EXPECT_EQ(num_pulls, 1);
}

TEST_P(RoundRunnerTest, AProcessThatTakesPartAgainTellsOnceThatItsResidualIsNotThere) {
  const auto cpu = *factory::MakeDevice("cpu", 1, nullptr);
  const bool has_feedback = GetParam()().push_encoding != params::Encoding::kFp32;
  TrainingRig training(GetParam()(), cpu.get(), /*overlap=*/true);
  training.server().RememberRounds(5);
  EXPECT_EQ(training.RunRound(0)->lost_residual_rounds, has_feedback ? 5 : 0);
  EXPECT_EQ(training.RunRound(1)->lost_residual_rounds, 0);
  TrainingRig fresh(GetParam()(), cpu.get(), /*overlap=*/true);
  EXPECT_EQ(fresh.RunRound(0)->lost_residual_rounds, 0);
}

TEST_P(RoundRunnerTest, WaitingForWeightsIsCommunicationWhoeverNeedsThem) {
  const auto cpu = *factory::MakeDevice("cpu", 1, nullptr);
  for (const messages::Grant::Kind kind :
       {messages::Grant::Kind::kTrain, messages::Grant::Kind::kEvaluate}) {
    SimulatedClock clock;
    TrainingRig training(GetParam()(), cpu.get(), /*overlap=*/true, /*trace=*/nullptr, &clock);
    ASSERT_OK(training.RunRound(0));
    absl::Notification waiting;
    training.on_activity_ = [&](absl::string_view activity) {
      if (activity == "pull" && !waiting.HasBeenNotified()) waiting.Notify();
    };
    training.server().on_pull_ = [&] {
      waiting.WaitForNotification();
      clock.AdvanceTime(absl::Seconds(10));
    };
    const absl::StatusOr<messages::RoundReport> report = training.RunRound(1, kind);
    ASSERT_OK(report);
    EXPECT_GT(report->heldout_predictions, 0);
    EXPECT_EQ(report->communication, absl::Seconds(10));
    EXPECT_EQ(report->evaluation, absl::ZeroDuration());
    EXPECT_EQ(report->compute, absl::ZeroDuration());
  }
}

TEST_P(RoundRunnerTest, AContributionIsToldOfOnItsWayWithTheReportThatFollows) {
  const auto cpu = *factory::MakeDevice("cpu", 1, nullptr);
  TrainingRig training(GetParam()(), cpu.get(), /*overlap=*/true);
  std::vector<messages::RoundReport> told;
  std::vector<Version> counted;
  training.on_contributed_ = [&](const messages::RoundReport& report) {
    told.push_back(report);
    counted.push_back(training.server().version());
  };
  training.server().RememberRounds(5);
  for (int64_t round = 0; round < 2; ++round) {
    const absl::StatusOr<messages::RoundReport> report = training.RunRound(round);
    ASSERT_OK(report);
    ASSERT_EQ(told.size(), round + 1);
    EXPECT_EQ(told.back().round, Round(round));
    EXPECT_EQ(told.back().loss_sum, report->loss_sum);
    EXPECT_EQ(told.back().num_samples, report->num_samples);
    EXPECT_EQ(told.back().heldout_loss_sum, report->heldout_loss_sum);
    EXPECT_EQ(told.back().base_version, Version(round));
    EXPECT_EQ(told.back().lost_residual_rounds, report->lost_residual_rounds);
  }
  EXPECT_EQ(counted, (std::vector{Version(0), Version(1)}));
  ASSERT_OK(training.RunRound(2, messages::Grant::Kind::kEvaluate));
  training.RequestStop();
  ASSERT_OK(training.RunRound(2));
  EXPECT_EQ(told.size(), 2) << "an evaluation, and a last round";
}

TEST_P(RoundRunnerTest, WaitingForAnAcknowledgementIsInTheNextReport) {
  const auto cpu = *factory::MakeDevice("cpu", 1, nullptr);
  SimulatedClock clock;
  TrainingRig training(GetParam()(), cpu.get(), /*overlap=*/true, /*trace=*/nullptr, &clock);
  training.server().on_finish_ = [&] { clock.AdvanceTime(absl::Seconds(10)); };
  EXPECT_EQ(training.RunRound(0)->communication, absl::ZeroDuration());
  for (int64_t round = 1; round < 3; ++round) {
    const absl::StatusOr<messages::RoundReport> report = training.RunRound(round);
    ASSERT_OK(report);
    EXPECT_EQ(report->communication, absl::Seconds(10));
    EXPECT_EQ(report->compute, absl::ZeroDuration());
  }
}

// Counts the pulls that have begun. Pulls begin on threads of their own.
class PullCount {
 public:
  explicit PullCount(TrainingRig& training) {
    training.server().on_pull_ = [this] {
      absl::MutexLock lock(&mutex_);
      ++count_;
    };
  }
  void Await(int count) {
    absl::MutexLock lock(&mutex_);
    const auto is_there = [&]() { return count_ >= count; };
    mutex_.Await(absl::Condition(&is_there));
  }
  int count() {
    absl::MutexLock lock(&mutex_);
    return count_;
  }

 private:
  absl::Mutex mutex_;
  int count_ = 0;
};

class PullsAheadTest : public ::testing::Test {
 protected:
  void Start(const job::JobSpec& job) {
    training_.emplace(job, device_.get(), /*overlap=*/true, /*trace=*/nullptr, &Clock::Real(),
                      /*pulls_ahead=*/true);
    pulls_.emplace(*training_);
  }

  // Returns the number of pulls that have begun. Ends a pull that still runs.
  int NumPulls() {
    training_->runner().EndLife();
    return pulls_->count();
  }

  const std::unique_ptr<kernels::Device> device_ = *factory::MakeDevice("cpu", 1, nullptr);
  std::optional<PullCount> pulls_;
  std::optional<TrainingRig> training_;
};

TEST_F(PullsAheadTest, TheNextWeightsAreAskedForBeforeTheirGrantComesAndOnce) {
  Start(SyncJob());
  for (int64_t round = 0; round < 3; ++round) {
    ASSERT_OK(training_->RunRound(round));
    pulls_->Await(round + 2);
  }
  EXPECT_EQ(NumPulls(), 4);
}

TEST_F(PullsAheadTest, GradientsLeaveBesideThePullOfWhatTheyLeadTo) {
  Start(SyncJob());
  training_->server().on_finish_ = [&] { pulls_->Await(2); };
  ASSERT_OK(training_->RunRound(0));
}

TEST_F(PullsAheadTest, WeightsThatAreContributedAreNotOverwrittenBeforeTheyAreAcknowledged) {
  Start(AverageJob());
  int num_before = 0;
  training_->server().on_finish_ = [&] { num_before = pulls_->count(); };
  ASSERT_OK(training_->RunRound(0));
  EXPECT_EQ(num_before, 1);
  pulls_->Await(2);
}

TEST_F(PullsAheadTest, TheNextWeightsComeAsTheContributionLeaves) {
  Start(SyncJob());
  std::vector<uint32_t> left;
  training_->server().on_add_ = [&](uint32_t bucket) { left.push_back(bucket); };
  training_->server().bytes_unsent_ = 1 << 30;
  ASSERT_OK(training_->RunRound(0));
  pulls_->Await(2);
  EXPECT_THAT(training_->server().asked(), ElementsAreArray(left));
  EXPECT_EQ(left.back(), 1u);
}

TEST_F(PullsAheadTest, TheNextWeightsComeAsForwardNeedsThemOnceTheContributionHasLeft) {
  Start(SyncJob());
  ASSERT_OK(training_->RunRound(0));
  pulls_->Await(2);
  EXPECT_THAT(training_->server().asked(),
              ElementsAreArray(AllBuckets(training_->server().registration())));
}

TEST_F(PullsAheadTest, WhereAllWeightsComeTogetherTheyComeAsForwardNeedsThem) {
  job::JobSpec job = SyncJob();
  job.clip_norm = 0.05;
  Start(job);
  training_->server().bytes_unsent_ = 1 << 30;
  ASSERT_OK(training_->RunRound(0));
  pulls_->Await(2);
  EXPECT_THAT(training_->server().asked(),
              ElementsAreArray(AllBuckets(training_->server().registration())));
}

// The token table has 40 rows of 32 elements, in five buckets of eight rows. The rows of tokens
// below 16 are in the first two buckets.
TEST_F(PullsAheadTest, RowsThatTheDataDoesNotHaveLeaveFirstAndComeLast) {
  job::JobSpec job = SyncJob();
  job.bucket_bytes = 1024;
  Start(job);
  training_->LimitTokens(16);
  std::vector<uint32_t> left;
  training_->server().on_add_ = [&](uint32_t bucket) { left.push_back(bucket); };
  ASSERT_OK(training_->RunRound(0));
  pulls_->Await(2);
  const std::vector<uint32_t> asked = training_->server().asked();
  ASSERT_EQ(asked.size(), left.size());
  EXPECT_THAT(std::vector<uint32_t>(asked.begin(), asked.begin() + 4), ElementsAre(0, 1, 5, 6));
  EXPECT_THAT(std::vector<uint32_t>(asked.end() - 3, asked.end()), ElementsAre(2, 3, 4));
  EXPECT_THAT(std::vector<uint32_t>(left.begin(), left.begin() + 3), ElementsAre(2, 3, 4));
  EXPECT_THAT(std::vector<uint32_t>(left.end() - 3, left.end()), ElementsAre(0, 1, 5));
  // From now on, the data also has tokens of the other buckets of the table. So the worker waits
  // for these buckets too, and then pulls all buckets in ascending order.
  training_->LimitTokens(40);
  ASSERT_OK(training_->RunRound(1));
  pulls_->Await(3);
  EXPECT_THAT(training_->server().asked(),
              ElementsAreArray(AllBuckets(training_->server().registration())));
}

TEST_F(PullsAheadTest, WhatNoGrantWantsIsDropped) {
  Start(SyncJob());
  ASSERT_OK(training_->RunRound(0));
  training_->server().SkipRounds(4);
  ASSERT_OK(training_->RunRound(5));
  EXPECT_EQ(NumPulls(), 4);
  ASSERT_OK(training_->RunRound(6));
  EXPECT_EQ(NumPulls(), 6);
}

TEST_F(PullsAheadTest, NotAfterAStop) {
  Start(SyncJob());
  training_->RequestStop();
  ASSERT_OK(training_->RunRound(0));
  EXPECT_EQ(NumPulls(), 1);
}

TEST_F(PullsAheadTest, NotWhereAWorkerMayBeLeftBehindOrGoesByItself) {
  job::JobSpec quorum = SyncJob();
  quorum.quorum = 1;
  job::JobSpec async = SyncJob();
  async.mode = job::Mode::kAsync;
  for (const job::JobSpec& job : {quorum, async}) {
    Start(job);
    for (int64_t round = 0; round < 2; ++round) ASSERT_OK(training_->RunRound(round));
    EXPECT_EQ(NumPulls(), 2) << NameOf(job.mode);
    training_.reset();
  }
}

// Returns one number per bucket that was sent: how many computations had run before the bucket was
// sent.
std::vector<int64_t> ComputedBeforeBuckets(bool overlap) {
  DelayedDevice device(DelayedDevice::Order::kLate);
  TrainingRig training(SyncJob(), &device, overlap);
  std::vector<int64_t> computed;
  training.server().on_add_ = [&](uint32_t) {
    computed.push_back(device.num_run(kernels::StreamKind::kCompute));
  };
  EXPECT_OK(training.RunRound(0));
  EXPECT_EQ(computed.size(), training.server().registration().buckets().size());
  return computed;
}

TEST(OverlapTest, EachBlockLeavesWhileTheBackwardOfEarlierBlocksIsAhead) {
  const std::vector<int64_t> computed = ComputedBeforeBuckets(/*overlap=*/true);
  ASSERT_FALSE(computed.empty());
  // A small gpt has four parts: two layers, a last norm and the tables.
  std::vector<int64_t> distinct = computed;
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  EXPECT_EQ(distinct.size(), 4u);
  EXPECT_TRUE(std::is_sorted(computed.begin(), computed.end()));
}

TEST(OverlapTest, WithoutItNothingLeavesBeforeBackwardHasEnded) {
  const std::vector<int64_t> computed = ComputedBeforeBuckets(/*overlap=*/false);
  ASSERT_FALSE(computed.empty());
  EXPECT_THAT(computed, Each(computed.back()));
}

TEST(LocalSgdTest, TheEndOfALifeEndsItsStepsAndHandsOverNothing) {
  const auto cpu = *factory::MakeDevice("cpu", 1, nullptr);
  TrainingRig training(AverageJob(), cpu.get(), /*overlap=*/true);
  training.EndLife();
  EXPECT_THAT(training.RunRound(0), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(training.server().version(), Version(0));
}

TEST(LocalSgdTest, AStopHandsOverTheStepsThatAreDone) {
  const auto cpu = *factory::MakeDevice("cpu", 1, nullptr);
  TrainingRig training(AverageJob(), cpu.get(), /*overlap=*/true);
  training.RequestStop();
  const absl::StatusOr<messages::RoundReport> report = training.RunRound(0);
  ASSERT_OK(report);
  EXPECT_EQ(report->num_samples, kRigBatch / 3);
  EXPECT_EQ(training.server().last_header().num_samples, kRigBatch / 3);
  EXPECT_EQ(training.server().version(), Version(1));
}

TEST(LocalSgdTest, AStopWithTimeForTheRestOfTheWindowHandsOverAllOfIt) {
  const auto cpu = *factory::MakeDevice("cpu", 1, nullptr);
  TrainingRig training(AverageJob(), cpu.get(), /*overlap=*/true);
  training.RequestStop(absl::Hours(1));
  const absl::StatusOr<messages::RoundReport> report = training.RunRound(0);
  ASSERT_OK(report);
  EXPECT_EQ(report->num_samples, kRigBatch);
  EXPECT_EQ(training.server().last_header().num_samples, kRigBatch);
}

TEST(LocalSgdTest, AStopWithinTheWindowEndsItOnceTheRestDoesNotFit) {
  const auto cpu = *factory::MakeDevice("cpu", 1, nullptr);
  SimulatedClock clock;
  TrainingRig training(AverageJob(), cpu.get(), /*overlap=*/true, /*trace=*/nullptr, &clock);
  // Each step takes 10 s. After the second step, 11 s are left. This is not enough for a third
  // step, because a step may take a quarter longer.
  training.on_step_ = [&](const RoundStep& step) {
    clock.AdvanceTime(absl::Seconds(10));
    if (step.step == 1) training.RequestStop(absl::Seconds(11));
  };
  const absl::StatusOr<messages::RoundReport> report = training.RunRound(0);
  ASSERT_OK(report);
  EXPECT_EQ(report->num_samples, 2 * kRigBatch / 3);
  EXPECT_EQ(training.server().last_header().num_samples, 2 * kRigBatch / 3);
  EXPECT_EQ(training.server().version(), Version(1));
}

TEST(LocalSgdTest, ContributesAfterOnePullOfTheWeights) {
  const auto cpu = *factory::MakeDevice("cpu", 1, nullptr);
  TrainingRig training(AverageJob(), cpu.get(), /*overlap=*/true, /*trace=*/nullptr, &Clock::Real(),
                       /*pulls_ahead=*/true);
  ASSERT_OK(training.RunRound(0));
  EXPECT_EQ(training.server().version(), Version(1));
  EXPECT_EQ(training.runner().num_pulls(), 1);
  ASSERT_OK(training.RunRound(1));
  EXPECT_EQ(training.runner().num_pulls(), 2);
}

// Fixture with a worker that is told to stop after two rounds. Another process continues with the
// third round.
class InnerStateTest : public ::testing::Test {
 protected:
  // Returns the servers' weights after the third round.
  std::vector<float> Weights(const job::JobSpec& job, InnerStateStore* store) {
    TrainingRig training(job, cpu_.get(), /*overlap=*/true);
    training.UseRunner(RunnerOf(job, training, store));
    for (int64_t round = 0; round < 2; ++round) EXPECT_OK(training.RunRound(round));
    if (store != nullptr) {
      EXPECT_OK(training.runner().KeepOptimizerState());
      training.UseRunner(RunnerOf(job, training, store));
    }
    EXPECT_OK(training.RunRound(2));
    return training.server().weights();
  }
  static std::unique_ptr<RoundRunner> RunnerOf(const job::JobSpec& job, const TrainingRig& training,
                                               InnerStateStore* store) {
    RoundRunnerDeps deps = training.runner_deps();
    deps.inner_states = store;
    return *MakeRoundRunner(SmallJob(job), deps);
  }

  const std::unique_ptr<kernels::Device> cpu_ = *factory::MakeDevice("cpu", 1, nullptr);
  InnerStateStore store_{&storage::FileSystem::Real(), ::testing::TempDir(), "a"};
};

TEST_F(InnerStateTest, AWorkerThatWasStoppedGoesOnToTheBit) {
  const std::vector<float> whole = Weights(PseudoGradientJob(), nullptr);
  EXPECT_EQ(Weights(PseudoGradientJob(), &store_), whole);
  EXPECT_THAT(store_.Load(), StatusIs(absl::StatusCode::kNotFound)) << "no state is used twice";
  // Without the stored state, the third round has another result.
  InnerStateStore nowhere(&storage::FileSystem::Real(), ::testing::TempDir() + "/none", "a");
  TrainingRig cold(PseudoGradientJob(), cpu_.get(), /*overlap=*/true);
  for (int64_t round = 0; round < 3; ++round) {
    cold.UseRunner(RunnerOf(PseudoGradientJob(), cold, &nowhere));
    ASSERT_OK(cold.RunRound(round));
  }
  EXPECT_NE(cold.server().weights(), whole);
}

// Tests a worker's process that continues to run while the servers restart.
TEST_F(InnerStateTest, ServersThatGoOnWhereTheyWereLeaveTheStateAndThoseThatGoBackDoNot) {
  const auto train = [&](bool are_started_again, const std::vector<int64_t>& last_rounds) {
    TrainingRig training(PseudoGradientJob(), cpu_.get(), /*overlap=*/true);
    for (int64_t round = 0; round < 2; ++round) EXPECT_OK(training.RunRound(round));
    if (are_started_again) training.server().BeginAnotherServerLife();
    for (const int64_t round : last_rounds) EXPECT_OK(training.RunRound(round));
    return training.server().weights();
  };
  EXPECT_EQ(train(true, {2}), train(false, {2}));
  EXPECT_NE(train(true, {1, 2}), train(false, {1, 2})) << "it begins anew";
}

TEST_F(InnerStateTest, StateOfAnotherWorkerJobOrLaterRoundIsNotUsed) {
  job::JobSpec adamw = PseudoGradientJob();
  adamw.optimizer.kind = job::OptimizerKind::kAdamW;
  job::JobSpec other_seed = adamw;
  other_seed.seed = 12345;
  InnerStateStore of_other_name(&storage::FileSystem::Real(), ::testing::TempDir(), "b");
  const auto third_round = [&](const job::JobSpec& job, InnerStateStore* store, int64_t round) {
    TrainingRig kept(adamw, cpu_.get(), /*overlap=*/true);
    kept.UseRunner(RunnerOf(adamw, kept, &store_));
    for (int64_t done = 0; done < 2; ++done) EXPECT_OK(kept.RunRound(done));
    EXPECT_OK(kept.runner().KeepOptimizerState());
    TrainingRig next(job, cpu_.get(), /*overlap=*/true);
    next.server().SkipRounds(round);
    next.UseRunner(RunnerOf(job, next, store));
    EXPECT_OK(next.RunRound(round));
    return next.server().weights();
  };
  // Returns the servers' weights after the first round of a process without stored state.
  const auto cold = [&](const job::JobSpec& job, int64_t round) {
    TrainingRig training(job, cpu_.get(), /*overlap=*/true);
    training.server().SkipRounds(round);
    EXPECT_OK(training.RunRound(round));
    return training.server().weights();
  };
  EXPECT_NE(third_round(adamw, &store_, 2), cold(adamw, 2));
  EXPECT_EQ(third_round(adamw, &store_, 1), cold(adamw, 1)) << "the job has gone back";
  EXPECT_EQ(third_round(adamw, &of_other_name, 2), cold(adamw, 2));
  EXPECT_EQ(third_round(other_seed, &store_, 2), cold(other_seed, 2));
}

std::string TraceOf(const job::JobSpec& job, kernels::Device* device) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/round_runner_trace.json");
  process::TraceRecorder trace({.path = path, .process = "test", .skip_rounds = 1, .num_rounds = 1},
                               &Clock::Real());
  TrainingRig training(job, device, /*overlap=*/true, &trace);
  for (int64_t round = 0; round < 3; ++round) {
    trace.BeginRound(round);
    EXPECT_OK(training.RunRound(round));
  }
  return ReadWholeFile(path, 1 << 24).value_or("");
}

TEST(RoundTraceTest, ShowsWhatTheHostAndTheStreamsDid) {
  DelayedDevice device(DelayedDevice::Order::kLate);
  const std::string trace = TraceOf(SyncJob(), &device);
  for (const char* name : {"read data", "upload", "forward", "backward", "evaluation", "pull wait",
                           "pull", "push wait", "copy wait"}) {
    EXPECT_THAT(trace, HasSubstr(absl::StrCat("\"name\":\"", name, "\""))) << name;
  }
  for (const char* lane : {"device: compute", "device: copy to host", "device: copy from host"}) {
    EXPECT_THAT(trace, HasSubstr(absl::StrCat("\"cat\":\"", lane, "\""))) << lane;
  }
  EXPECT_THAT(trace, AllOf(HasSubstr("\"round\":1"), Not(HasSubstr("\"round\":2"))));
}

// Matches a trace that has a span of this name in this lane.
auto HasSpan(const std::string& name, const std::string& lane) {
  return HasSubstr(absl::StrCat("\"cat\":\"", lane, "\",\"name\":\"", name, "\""));
}

TEST(RoundTraceTest, EncodingIsWorkOfTheDevice) {
  DelayedDevice device(DelayedDevice::Order::kLate);
  EXPECT_THAT(
      TraceOf(EncodedAverageJob(), &device),
      AllOf(HasSpan("encode", "device: copy to host"), HasSpan("copy", "device: copy to host"),
            HasSpan("residual", "device: compute"), Not(HasSpan("encode", "training"))));
  const auto cpu = *factory::MakeDevice("cpu", 1, nullptr);
  EXPECT_THAT(TraceOf(EncodedAverageJob(), cpu.get()), HasSpan("encode", "training"));
}

TEST(RoundTraceTest, ADeviceThatRunsInlineHasNoStreamsToShow) {
  const auto cpu = *factory::MakeDevice("cpu", 1, nullptr);
  const std::string trace = TraceOf(PseudoGradientJob(), cpu.get());
  EXPECT_THAT(trace, AllOf(HasSubstr("\"backward\""), HasSubstr("\"inner optimizer\""),
                           Not(HasSubstr("device: "))));
}

}  // namespace
}  // namespace lodestar::trainer
