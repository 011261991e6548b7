// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/faults/fault_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "absl/time/time.h"
#include "common/runtime/ids.h"

namespace lodestar::faults {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr WorkerId kA(1), kB(2), kC(3), kD(4);

NotFiniteVerdict Dropped(SenderVerdict sender = {}) {
  return {.kind = NotFiniteVerdict::Kind::kDrop, .sender = sender};
}
SenderVerdict Counted(int times) { return {.kind = SenderVerdict::Kind::kCounted, .times = times}; }
SenderVerdict ShutOut(int times) { return {.kind = SenderVerdict::Kind::kShutOut, .times = times}; }

std::vector<Sender> Members(const std::vector<WorkerId>& workers) {
  std::vector<Sender> senders;
  for (const WorkerId worker : workers) senders.push_back({.worker = worker, .is_member = true});
  return senders;
}

class FaultPolicyTest : public testing::Test {
 protected:
  DivergencePolicy limits_{.nonfinite_limit = 2, .poison_limit = 2};
  FaultPolicy policy_{limits_};
};

TEST_F(FaultPolicyTest, ALifeWhoseNumbersAreNotFiniteCountsOnce) {
  const std::vector<Sender> all = Members({kA, kB});
  EXPECT_EQ(policy_.CountNotFinite(kA, Incarnation(1), Round(0), all), Dropped(Counted(1)));
  EXPECT_EQ(policy_.CountNotFinite(kA, Incarnation(1), Round(0), all), NotFiniteVerdict());
  EXPECT_EQ(policy_.CountNotFinite(kA, Incarnation(1), Round(1), all), NotFiniteVerdict());
  EXPECT_EQ(policy_.times_not_finite(kA), 1);
  EXPECT_EQ(policy_.times_not_finite(kB), 0);
}

TEST_F(FaultPolicyTest, AWorkerIsSickOnceItsProcessHasFailedUpToTheLimit) {
  const std::vector<Sender> all = Members({kA, kB});
  policy_.CountNotFinite(kA, Incarnation(1), Round(0), all);
  EXPECT_FALSE(policy_.IsSick(kA));
  policy_.CountFinite(kB);
  policy_.CountNotFinite(kA, Incarnation(2), Round(1), all);
  EXPECT_TRUE(policy_.IsSick(kA));
  policy_.BeginLife(kA, /*is_same_process=*/true);
  EXPECT_TRUE(policy_.IsSick(kA));
  policy_.BeginLife(kA, /*is_same_process=*/false);
  EXPECT_FALSE(policy_.IsSick(kA));
}

TEST_F(FaultPolicyTest, AFiniteReportOfTheWorkerEndsTheCount) {
  policy_.CountNotFinite(kA, Incarnation(1), Round(0), Members({kA, kB}));
  policy_.CountFinite(kA);
  EXPECT_EQ(policy_.times_not_finite(kA), 0);
}

// If no finite numbers came since the first life, the weights may be the cause. The second life
// then does not count.
TEST_F(FaultPolicyTest, WithoutAFiniteReportInBetweenAFurtherLifeIsNoFurtherTime) {
  const std::vector<Sender> all = Members({kA, kB});
  policy_.CountNotFinite(kA, Incarnation(1), Round(0), all);
  EXPECT_EQ(policy_.CountNotFinite(kA, Incarnation(2), Round(1), all), Dropped());
  EXPECT_EQ(policy_.times_not_finite(kA), 1);
  policy_.CountFinite(kB);
  EXPECT_EQ(policy_.CountNotFinite(kA, Incarnation(3), Round(2), all), Dropped(Counted(2)));
}

TEST_F(FaultPolicyTest, IfNoMemberIsFiniteTheRunHasDiverged) {
  const std::vector<Sender> all = Members({kA, kB});
  EXPECT_EQ(policy_.CountNotFinite(kA, Incarnation(1), Round(3), all), Dropped(Counted(1)));
  EXPECT_EQ(policy_.CountNotFinite(kB, Incarnation(2), Round(3), all).kind,
            NotFiniteVerdict::Kind::kDiverged);
}

TEST_F(FaultPolicyTest, AWorkerThatIsNoMemberKeepsNoRunFromDiverging) {
  std::vector<Sender> all = Members({kA, kB});
  all[1].is_member = false;
  EXPECT_EQ(policy_.CountNotFinite(kA, Incarnation(1), Round(3), all).kind,
            NotFiniteVerdict::Kind::kDiverged);
}

TEST_F(FaultPolicyTest, ASenderIsShutOutBeyondTheLimitAndTheCountBeginsAnew) {
  const std::vector<Sender> all = Members({kA, kB});
  EXPECT_EQ(policy_.CountPoisoned(kA, Round(1), all), Counted(1));
  EXPECT_EQ(policy_.CountPoisoned(kA, Round(1), all), SenderVerdict());
  EXPECT_EQ(policy_.CountPoisoned(kA, Round(2), all), Counted(2));
  EXPECT_EQ(policy_.CountPoisoned(kA, Round(3), all), ShutOut(3));
  EXPECT_THAT(policy_.MemoryOf(kA).poisoned_rounds, IsEmpty());
  EXPECT_EQ(policy_.CountPoisoned(kA, Round(4), all), Counted(1));
}

TEST_F(FaultPolicyTest, RoundsThatLieFarBackDoNotCount) {
  const std::vector<Sender> all = Members({kA, kB});
  policy_.CountPoisoned(kA, Round(0), all);
  policy_.CountPoisoned(kA, Round(1), all);
  EXPECT_EQ(policy_.CountPoisoned(kA, Round(DivergencePolicy::kPoisonWindow), all), Counted(2));
}

TEST_F(FaultPolicyTest, ALimitOfZeroShutsNoSenderOut) {
  limits_.poison_limit = 0;
  FaultPolicy policy(limits_);
  for (int round = 0; round < 10; ++round) {
    EXPECT_EQ(policy.CountPoisoned(kA, Round(round), Members({kA, kB})), Counted(round + 1));
  }
}

TEST_F(FaultPolicyTest, WorkersOfOneCertificateAreOneSender) {
  std::vector<Sender> all = Members({kA, kB, kC});
  all[0].identity = all[1].identity = "site";
  all[0].is_member = false;  // the first worker's life has ended
  policy_.CountPoisoned(kA, Round(1), all);
  EXPECT_EQ(policy_.CountPoisoned(kB, Round(1), all), Counted(1)) << "a round counts once";
  EXPECT_EQ(policy_.CountPoisoned(kB, Round(2), all), Counted(2));
  EXPECT_EQ(policy_.CountPoisoned(kC, Round(2), all), Counted(1));
  EXPECT_EQ(policy_.CountPoisoned(kB, Round(3), all), ShutOut(3));
  EXPECT_THAT(policy_.MemoryOf(kA).poisoned_rounds, IsEmpty());
  EXPECT_THAT(policy_.MemoryOf(kC).poisoned_rounds, ElementsAre(Round(2)));
}

TEST_F(FaultPolicyTest, ACertificateThatHasHalfOfTheOthersIsNoProofAgainstASender) {
  std::vector<Sender> all = Members({kA, kB, kC, kD});
  all[1].identity = all[2].identity = "many";
  policy_.CountPoisoned(kA, Round(1), all);
  policy_.CountPoisoned(kA, Round(2), all);
  const SenderVerdict undecided = {
      .kind = SenderVerdict::Kind::kUndecided, .times = 3, .leading_identity = "many"};
  EXPECT_EQ(policy_.CountPoisoned(kA, Round(3), all), undecided);
  all[2].identity = "";
  EXPECT_EQ(policy_.CountPoisoned(kA, Round(4), all), ShutOut(4)) << "one worker leads no others";
}

TEST_F(FaultPolicyTest, ARunGoesBackAsOftenAsItMay) {
  limits_.action = DivergenceAction::kRollback;
  limits_.max_rollbacks = 1;
  FaultPolicy policy(limits_);
  policy.SetBack({.rounds_done = 7, .why = "an operator"});
  const Divergence divergence = {Round(5), "NaN", absl::UnixEpoch()};
  EXPECT_FALSE(policy.OnDiverged(divergence, /*may_go=*/false));
  EXPECT_EQ(policy.memory(), FaultPolicy::Memory());
  EXPECT_TRUE(policy.setback().has_value());
  EXPECT_TRUE(policy.OnDiverged(divergence, /*may_go=*/true));
  EXPECT_EQ(policy.memory(), (FaultPolicy::Memory{.rollbacks = 1, .learning_rate_scale = 0.5}));
  EXPECT_FALSE(policy.setback().has_value());
  EXPECT_FALSE(policy.OnDiverged(divergence, /*may_go=*/true));
  EXPECT_EQ(policy.last_divergence()->round, Round(5));
}

TEST_F(FaultPolicyTest, ARunThatIsToStopDoesNotGoBack) {
  EXPECT_FALSE(policy_.OnDiverged({Round(5), "NaN", absl::UnixEpoch()}, /*may_go=*/true));
  EXPECT_EQ(policy_.memory().rollbacks, 0);
}

TEST_F(FaultPolicyTest, AnotherFactorAfterARestartIsNoOrderOfOperators) {
  limits_.action = DivergenceAction::kRollback;
  FaultPolicy before(limits_);
  before.OnDiverged({Round(5), "NaN", absl::UnixEpoch()}, /*may_go=*/true);
  limits_.learning_rate_factor = 0.25;
  FaultPolicy after(limits_);
  after.Resume(before.memory());
  after.OnDiverged({Round(6), "NaN", absl::UnixEpoch()}, /*may_go=*/true);
  EXPECT_EQ(after.memory().scale_by_operators, 1.0);
  after.MultiplyLearningRateScale(0.4);
  EXPECT_EQ(after.memory().learning_rate_scale, 0.5 * 0.25 * 0.4);
  EXPECT_EQ(after.memory().scale_by_operators, 0.4);
}

TEST_F(FaultPolicyTest, WhatAWorkerHasOutlivesTheProcess) {
  const std::vector<Sender> all = Members({kA, kB});
  policy_.CountNotFinite(kA, Incarnation(1), Round(0), all);
  policy_.CountPoisoned(kA, Round(2), all);
  FaultPolicy resumed(limits_);
  resumed.Resume(policy_.memory());
  resumed.Resume(kA, policy_.MemoryOf(kA));
  EXPECT_EQ(resumed.CountNotFinite(kA, Incarnation(1), Round(0), all), NotFiniteVerdict());
  EXPECT_EQ(resumed.CountPoisoned(kA, Round(3), all), ShutOut(3));
  resumed.Resume(kB, policy_.MemoryOf(kA));
  resumed.Forget(kA);
  EXPECT_EQ(resumed.times_not_finite(kA), 0);
  EXPECT_EQ(resumed.times_not_finite(kB), 1);
  resumed.ForgetWorkers();
  EXPECT_EQ(resumed.times_not_finite(kB), 0);
}

}  // namespace
}  // namespace lodestar::faults
