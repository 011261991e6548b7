// SPDX-License-Identifier: Apache-2.0

// Tests of rounds whose exchange overlaps with computing, with one worker and a parameter server in
// memory. They compare the results with those of rounds without overlap. They also end connections,
// lives and servers in the middle of rounds.
#include "worker/trainer/overlapped_rounds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "kernels/factory/device_factory.h"
#include "worker/trainer/testing/delayed_device.h"
#include "worker/trainer/testing/training_rig.h"

namespace lodestar::trainer {
namespace {

using ::testing::HasSubstr;

// The number of local steps of a window. It is also the number of fragments.
constexpr int kSteps = 3;

job::JobSpec LocalJob(job::OuterOptimizerKind outer) {
  job::JobSpec job;
  job.mode = job::Mode::kLocalSgd;
  job.local_steps = kSteps;
  job.outer_optimizer = outer;
  job.outer_learning_rate = 1.0;
  job.outer_momentum = 0.0;
  return job;
}

job::JobSpec Average() { return LocalJob(job::OuterOptimizerKind::kAverage); }

job::JobSpec PseudoGradient() {
  job::JobSpec job = LocalJob(job::OuterOptimizerKind::kNesterov);
  job.optimizer.kind = job::OptimizerKind::kMomentum;
  job.clip_norm = 0.05;
  return job;
}

job::JobSpec Encoded() {
  job::JobSpec job = Average();
  // bf16 rounds equal values equally in every round. Encodings that round at random do not.
  job.push_encoding = params::Encoding::kBf16;
  return job;
}

job::JobSpec Fragments(job::JobSpec job, int overlap_steps = 0,
                       job::MergeKind merge = job::MergeKind::kKeep) {
  job.fragments = kSteps;
  job.overlap_steps = overlap_steps;
  job.merge = merge;
  return job;
}

job::JobSpec Eager(job::JobSpec job) {
  job.overlap_rounds = true;
  return job;
}

job::JobSpec FragmentsOfAverages() { return Fragments(Average()); }
job::JobSpec MixedFragments() { return Fragments(PseudoGradient(), 1, job::MergeKind::kMix); }
job::JobSpec KeptEncodedFragments() { return Fragments(Encoded(), 1); }
job::JobSpec EagerRounds() { return Eager(PseudoGradient()); }
job::JobSpec Elastic() {
  job::JobSpec job = PseudoGradient();
  job.outer_optimizer = job::OuterOptimizerKind::kEasgd;
  job.outer_learning_rate = 0.9;
  return job;
}
job::JobSpec ElasticFragments() { return Fragments(Elastic()); }

std::vector<float> Parameters(TrainingRig& rig) {
  const kernels::Buf parameters = rig.model().parameters();
  return {parameters.as<float>(), parameters.as<float>() + parameters.num_elements};
}

// Trains for `rounds` rounds. The test fails if a round fails.
void Train(TrainingRig& rig, int64_t rounds) {
  for (int64_t round = 0; round < rounds; ++round) ASSERT_OK(rig.RunRound(round));
}

double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double square = 0.0;
  for (size_t i = 0; i < a.size(); ++i) square += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(square);
}

// A device for only one rig. A window may still compute on it after the rig's last round.
class OwnDevice {
 public:
  kernels::Device* get() const { return device_.get(); }

 private:
  const std::unique_ptr<kernels::Device> device_ = *factory::MakeDevice("cpu", 1, nullptr);
};

class OverlappedRoundsTest : public ::testing::Test {
 protected:
  static std::vector<float> WeightsAfter(const job::JobSpec& job, int64_t rounds) {
    const OwnDevice device;
    TrainingRig rig(job, device.get(), /*overlap=*/true);
    Train(rig, rounds);
    return rig.server().weights();
  }

  const OwnDevice device_;
};

TEST_F(OverlappedRoundsTest, OneFragmentWithoutOverlapIsLocalSgdToTheBit) {
  for (const job::JobSpec& job : {Average(), PseudoGradient(), Encoded()}) {
    const OwnDevice device;
    TrainingRig rig(job, device.get(), /*overlap=*/true);
    rig.UseRunner(*OverlappedRounds::Create(rig.server().registration().job, rig.runner_deps()));
    // The steps of a grant are contributed in the next round. So four rounds contribute the steps
    // of only three grants.
    Train(rig, 4);
    EXPECT_EQ(rig.server().weights(), WeightsAfter(job, 3));
  }
}

TEST_F(OverlappedRoundsTest, OneWorkersFragmentsAreItsTrainingToTheBit) {
  TrainingRig rig(FragmentsOfAverages(), device_.get(), /*overlap=*/true);
  Train(rig, 2 * kSteps);
  // Contributes the result of the last window. The worker computes no new window.
  ASSERT_OK(rig.RunRound(2 * kSteps, TrainingRig::Work::kIdle));
  const OwnDevice other;
  TrainingRig plain(Average(), other.get(), /*overlap=*/true);
  Train(plain, 2);
  EXPECT_EQ(Parameters(rig), Parameters(plain));
}

TEST_F(OverlappedRoundsTest, OneWorkerThatKeepsItsStepsTrainsAsIfThereWereNoExchange) {
  const std::vector<float> start = WeightsAfter(Average(), 0);
  TrainingRig rig(Fragments(Average(), /*overlap_steps=*/1), device_.get(), /*overlap=*/true);
  Train(rig, 2 * kSteps);
  ASSERT_OK(rig.RunRound(2 * kSteps, TrainingRig::Work::kIdle));
  const std::vector<float> plain = WeightsAfter(Average(), 2);
  EXPECT_LT(Distance(Parameters(rig), plain), 1e-5 * Distance(start, plain));
}

TEST_F(OverlappedRoundsTest, WhatWasCountedIsNotInTheResidualOfAnotherLife) {
  job::JobSpec job = Encoded();
  job.overlap_steps = 1;
  // SGD has no state, so a shorter or longer window does not change later rounds.
  job.optimizer.kind = job::OptimizerKind::kSgd;
  std::vector<std::vector<std::vector<std::byte>>> pushed;
  for (const bool is_merged : {true, false}) {
    const OwnDevice device;
    absl::Notification merged;
    TrainingRig rig(job, device.get(), /*overlap=*/true);
    // Must be set before Train(), because a window still runs after Train().
    rig.on_step_ = [&](const RoundStep& step) {
      // At this step, the merge has begun.
      if (step.round == Round(2) && step.step == job.overlap_steps) merged.Notify();
    };
    Train(rig, 2);
    rig.server().on_add_ = [&](uint32_t) {
      if (!is_merged) rig.server().HoldPulls();
    };
    ASSERT_OK(rig.RunRound(2));
    rig.server().on_add_ = [](uint32_t) {};
    if (is_merged) merged.WaitForNotification();
    rig.runner().EndLife();
    rig.server().ReleasePulls();
    rig.server().BeginAnotherLife();
    for (int64_t round = 3; round < 5; ++round) ASSERT_OK(rig.RunRound(round));
    pushed.push_back(rig.server().pushed());
  }
  EXPECT_EQ(pushed[0], pushed[1]);
}

TEST_F(OverlappedRoundsTest, OneEagerWorkerMakesTheServersOuterSteps) {
  for (const double momentum : {0.0, 0.9}) {
    // AdamW is not used here, because its steps would magnify rounding errors of small gradients.
    job::JobSpec job = PseudoGradient();
    job.outer_learning_rate = 0.7;
    job.outer_momentum = momentum;
    const auto train = [&](const job::JobSpec& with, int64_t rounds) {
      const OwnDevice device;
      TrainingRig rig(with, device.get(), /*overlap=*/true);
      rig.server().UseOuterMomentum(0.7, momentum);
      Train(rig, rounds);
      return rig.server().weights();
    };
    const std::vector<float> start = WeightsAfter(job, 0);
    const std::vector<float> plain = train(job, 6);
    EXPECT_LT(Distance(train(Eager(job), 7), plain), 1e-4 * Distance(start, plain))
        << "momentum " << momentum;
  }
}

// Tests that one worker and its servers move towards each other, each by beta times their distance.
TEST_F(OverlappedRoundsTest, AnElasticWorkerAndItsServersMeetOnTheWay) {
  const double beta = Elastic().outer_learning_rate;
  TrainingRig rig(Elastic(), device_.get(), /*overlap=*/true);
  rig.server().UseOuterMomentum(beta, 0.0);
  const std::vector<float> center = rig.server().weights();
  Train(rig, 1);
  // Contributes the result of the window. The worker computes no new window.
  ASSERT_OK(rig.RunRound(1, TrainingRig::Work::kIdle));
  const OwnDevice other;
  TrainingRig plain(PseudoGradient(), other.get(), /*overlap=*/true);
  Train(plain, 1);
  const std::vector<float> local = Parameters(plain);
  ASSERT_GT(Distance(local, center), 1e-3);
  const std::vector<float> local_after = Parameters(rig);
  const std::vector<float>& center_after = rig.server().weights();
  for (size_t i = 0; i < local.size(); ++i) {
    ASSERT_NEAR(local_after[i], local[i] + beta * (center[i] - local[i]), 1e-6) << i;
    ASSERT_NEAR(center_after[i], center[i] + beta * (local[i] - center[i]), 1e-6) << i;
    ASSERT_NEAR(local_after[i] + center_after[i], local[i] + center[i], 1e-6) << i;
  }
}

// With rate 0 the worker keeps its own weights, and the servers' weights do not change.
TEST_F(OverlappedRoundsTest, AnElasticWorkerThatIsNotPulledTrainsAlone) {
  job::JobSpec job = Elastic();
  job.outer_learning_rate = 0.0;
  TrainingRig rig(job, device_.get(), /*overlap=*/true);
  rig.server().UseOuterMomentum(0.0, 0.0);
  const std::vector<float> center = rig.server().weights();
  Train(rig, 3);
  ASSERT_OK(rig.RunRound(3, TrainingRig::Work::kIdle));
  EXPECT_EQ(rig.server().weights(), center);
  const OwnDevice other;
  job::JobSpec alone = PseudoGradient();
  alone.outer_optimizer = job::OuterOptimizerKind::kAverage;
  TrainingRig averaged(alone, other.get(), /*overlap=*/true);
  Train(averaged, 3);
  EXPECT_EQ(Parameters(rig), Parameters(averaged));
}

TEST_F(OverlappedRoundsTest, MixingWithAlphaOneLeavesTheWorkersWeights) {
  job::JobSpec job = Fragments(Average(), 1, job::MergeKind::kMix);
  const auto train = [&](double alpha) {
    job.merge_alpha = alpha;
    const OwnDevice device;
    TrainingRig rig(job, device.get(), /*overlap=*/true);
    Train(rig, 2 * kSteps);
    EXPECT_OK(rig.RunRound(2 * kSteps, TrainingRig::Work::kIdle));
    return Parameters(rig);
  };
  const OwnDevice other;
  TrainingRig plain(Average(), other.get(), /*overlap=*/true);
  Train(plain, 2);
  EXPECT_EQ(train(1.0), Parameters(plain));
  EXPECT_GT(Distance(train(0.0), Parameters(plain)), 0.0);
}

TEST_F(OverlappedRoundsTest, ARoundPushesAndPullsItsFragmentAlone) {
  TrainingRig rig(FragmentsOfAverages(), device_.get(), /*overlap=*/true);
  const auto& buckets = rig.server().registration().buckets();
  const job::FragmentPlan plan(buckets, kSteps);
  std::vector<uint32_t> added;
  rig.server().on_add_ = [&](uint32_t bucket) { added.push_back(bucket); };
  for (int64_t round = 0; round < 2 * kSteps; ++round) {
    added.clear();
    ASSERT_OK(rig.RunRound(round));
    EXPECT_EQ(added, plan.DueIn(Round(round)));
  }
}

TEST_F(OverlappedRoundsTest, TheFirstContributionOfALifeIsSkippedAndOthersStandForACycle) {
  TrainingRig rig(FragmentsOfAverages(), device_.get(), /*overlap=*/true);
  for (int64_t round = 0; round < 5; ++round) {
    ASSERT_OK_AND_ASSIGN(const messages::RoundReport report, rig.RunRound(round));
    const int64_t windows = std::min<int64_t>(round, kSteps);
    EXPECT_EQ(rig.server().last_header().num_samples,
              round == 0 ? messages::kSkippedSamples : windows * kRigBatch / kSteps);
    EXPECT_EQ(report.num_samples, round == 0 ? 0 : kRigBatch / kSteps);
    EXPECT_FALSE(report.leaves_nothing_in_hand);
  }
}

TEST_F(OverlappedRoundsTest, WhatWasMadeBeforeWhoComputesHasLeftIsContributed) {
  TrainingRig rig(EagerRounds(), device_.get(), /*overlap=*/true);
  // Must be set before Train(), because a window still runs after Train().
  rig.on_step_ = [&](const RoundStep& step) {
    if (step.round != Round(2) || step.step != 1) return;
    rig.RequestStop(/*time=*/absl::Hours(1));
    rig.FailReading(absl::CancelledError("who computes has left"));
  };
  Train(rig, 2);
  ASSERT_OK(rig.RunRound(2));
  ASSERT_OK_AND_ASSIGN(const messages::RoundReport report,
                       rig.RunRound(3, TrainingRig::Work::kIdle));
  EXPECT_EQ(report.num_samples, 2 * kRigBatch / kSteps);
  EXPECT_EQ(rig.server().last_header().num_samples, report.num_samples);
  EXPECT_TRUE(report.leaves_nothing_in_hand);
}

class OverlapKindsTest : public ::testing::TestWithParam<job::JobSpec (*)()> {
 protected:
  static std::vector<float> Undisturbed() {
    const OwnDevice device;
    TrainingRig rig(GetParam()(), device.get(), /*overlap=*/true);
    Train(rig, 5);
    return rig.server().weights();
  }

  const OwnDevice device_;
};

INSTANTIATE_TEST_SUITE_P(Jobs, OverlapKindsTest,
                         ::testing::Values(&FragmentsOfAverages, &MixedFragments,
                                           &KeptEncodedFragments, &EagerRounds, &Elastic,
                                           &ElasticFragments));

TEST_P(OverlapKindsTest, TwoRunsAreTheSameBitsOnEveryDevice) {
  const std::vector<float> expected = Undisturbed();
  EXPECT_EQ(Undisturbed(), expected);
  for (const auto order : {DelayedDevice::Order::kLate, DelayedDevice::Order::kCopiesFirst}) {
    DelayedDevice device(order);
    TrainingRig rig(GetParam()(), &device, /*overlap=*/true);
    Train(rig, 5);
    EXPECT_EQ(rig.server().weights(), expected) << "order " << static_cast<int>(order);
  }
}

TEST_P(OverlapKindsTest, LostConnectionsChangeNothing) {
  TrainingRig rig(GetParam()(), device_.get(), /*overlap=*/true);
  for (int64_t round = 0; round < 5; ++round) {
    ASSERT_OK(rig.RunRound(round));
    rig.runner().EndLife();
  }
  EXPECT_EQ(rig.server().weights(), Undisturbed());
}

TEST_P(OverlapKindsTest, AContributionThatWasNotAcknowledgedIsPushedAgain) {
  for (const absl::StatusCode code : {absl::StatusCode::kAborted, absl::StatusCode::kUnavailable}) {
    for (const bool is_counted : {false, true}) {
      TrainingRig rig(GetParam()(), device_.get(), /*overlap=*/true);
      for (int64_t round = 0; round < 5; ++round) {
        rig.server().push_failure_ = absl::Status(code, "the answer is damaged");
        rig.server().counts_before_failing_ = is_counted;
        absl::StatusOr<messages::RoundReport> report = rig.RunRound(round);
        if (code != absl::StatusCode::kUnavailable) {
          EXPECT_THAT(report, StatusIs(code));
          rig.runner().EndLife();
          report = rig.RunRound(round);
        }
        ASSERT_OK(report);
        EXPECT_EQ(report->num_samples > 0, round > 0);
      }
      EXPECT_EQ(rig.server().weights(), Undisturbed()) << code << " counted " << is_counted;
    }
  }
}

TEST_P(OverlapKindsTest, AnotherLifeBeginsWithTheServersWeights) {
  TrainingRig rig(GetParam()(), device_.get(), /*overlap=*/true);
  Train(rig, 3);
  rig.runner().EndLife();
  rig.server().BeginAnotherLife();
  ASSERT_OK_AND_ASSIGN(const messages::RoundReport report, rig.RunRound(3));
  EXPECT_EQ(report.num_samples, 0);
  EXPECT_EQ(rig.server().last_header().num_samples, messages::kSkippedSamples);
  ASSERT_OK(rig.RunRound(4));
  EXPECT_GT(rig.server().last_header().num_samples, 0);
}

TEST_P(OverlapKindsTest, ARoundThatIsNotTheNextBeginsAnew) {
  TrainingRig rig(GetParam()(), device_.get(), /*overlap=*/true);
  ASSERT_OK(rig.RunRound(0));
  rig.server().SkipRounds(3);
  ASSERT_OK(rig.RunRound(4));
  EXPECT_EQ(rig.server().last_header().num_samples, messages::kSkippedSamples);
}

TEST_P(OverlapKindsTest, EvaluatesWithTheServersWeights) {
  TrainingRig rig(GetParam()(), device_.get(), /*overlap=*/true);
  ASSERT_OK(rig.RunRound(0));
  ASSERT_OK_AND_ASSIGN(const messages::RoundReport report, rig.RunRound(1));
  EXPECT_GT(report.heldout_predictions, 0);
  // Nothing was contributed before round 1, so the servers still have their first weights. A run
  // that begins with round 1 must get the same loss.
  const OwnDevice other;
  TrainingRig again(GetParam()(), other.get(), /*overlap=*/true);
  again.server().SkipRounds(1);
  ASSERT_OK_AND_ASSIGN(const messages::RoundReport expected,
                       again.RunRound(1, messages::Grant::Kind::kEvaluate));
  EXPECT_EQ(report.heldout_loss_sum, expected.heldout_loss_sum);
}

TEST_P(OverlapKindsTest, AStopContributesTheStepsThatAreDoneAndBeginsNoOthers) {
  TrainingRig rig(GetParam()(), device_.get(), /*overlap=*/true);
  Train(rig, 2);
  rig.RequestStop();
  ASSERT_OK_AND_ASSIGN(const messages::RoundReport report, rig.RunRound(2));
  EXPECT_TRUE(report.leaves_nothing_in_hand);
  EXPECT_EQ(rig.server().version(), Version(3));
}

TEST_P(OverlapKindsTest, AnIdleGrantTakesWhatIsInHand) {
  TrainingRig rig(GetParam()(), device_.get(), /*overlap=*/true);
  Train(rig, 2);
  ASSERT_OK_AND_ASSIGN(const messages::RoundReport report,
                       rig.RunRound(2, TrainingRig::Work::kIdle));
  EXPECT_TRUE(report.leaves_nothing_in_hand);
  EXPECT_GT(report.num_samples, 0);
  EXPECT_GT(rig.server().last_header().num_samples, 0);
}

TEST_P(OverlapKindsTest, AnErrorOfTheWindowIsThatOfTheNextRound) {
  TrainingRig rig(GetParam()(), device_.get(), /*overlap=*/true);
  rig.FailReading(absl::ResourceExhaustedError("no descriptors are left"));
  ASSERT_OK(rig.RunRound(0));
  EXPECT_THAT(rig.RunRound(1), StatusIs(absl::StatusCode::kFailedPrecondition,
                                        HasSubstr("no descriptors are left")));
}

TEST_P(OverlapKindsTest, TheEndOfALifeEndsItsWindow) {
  TrainingRig rig(GetParam()(), device_.get(), /*overlap=*/true);
  ASSERT_OK(rig.RunRound(0));
  rig.EndLife();
  // The window of round 0 may have ended before EndLife(). In that case round 1 succeeds, and round
  // 2 fails.
  absl::Status status = rig.RunRound(1).status();
  if (status.ok()) status = rig.RunRound(2).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted));
}

}  // namespace
}  // namespace lodestar::trainer
