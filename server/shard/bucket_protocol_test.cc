// SPDX-License-Identifier: Apache-2.0

#include "server/shard/bucket_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/testing/status_matchers.h"
#include "server/sync/policy_factory.h"

namespace lodestar::shard {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Effect = BucketEffect::Kind;
using Step = BucketStep::Kind;

job::JobSpec JobOf(job::Mode mode, int quorum = 0) {
  job::JobSpec job;
  job.mode = mode;
  job.quorum = quorum;
  job.clip_norm = 1.0;
  job.schedule.peak = 0.5;
  return job;
}

std::string Text(const BucketEffect& effect) {
  static constexpr absl::string_view kOutcomes[] = {"counted", "duplicate", "late"};
  const absl::string_view outcome = kOutcomes[static_cast<int>(effect.outcome)];
  switch (effect.kind) {
    case Effect::kRequestSlot:
      return absl::StrCat("slot for ", effect.call, effect.in_turn ? " in turn" : "");
    case Effect::kDiscardPush:
      return absl::StrCat("discard ", effect.call, ": ", outcome);
    case Effect::kAcknowledge:
      return absl::StrCat(outcome, " ", effect.call);
    case Effect::kRefusePush:
    case Effect::kRefuse:
      return absl::StrCat("refuse ", effect.call, ": ",
                          absl::StatusCodeToString(effect.status.code()));
    case Effect::kRead:
      return absl::StrCat("read ", effect.call);
    case Effect::kCapture:
      return absl::StrCat("capture ", effect.call);
    case Effect::kRefuseRead:
    case Effect::kRefuseCapture:
      return absl::StrCat("no answer ", effect.call, ": ",
                          absl::StatusCodeToString(effect.status.code()));
    case Effect::kRefuseReplacement:
      return absl::StrCat("no new weights: ", absl::StatusCodeToString(effect.status.code()));
    case Effect::kNotice:
      return "notice";
    case Effect::kFault:
      return absl::StrCat("fault of worker ", effect.fault.worker.value(), " in round ",
                          effect.fault.round.value());
  }
  return "";
}

std::string Text(const BucketStep& step) {
  switch (step.kind) {
    case Step::kNone:
      return "";
    case Step::kAccumulate:
      return absl::StrCat("add ", step.contribution, " times ", step.factor);
    case Step::kTakeWeights:
      return absl::StrCat("take ", step.contribution);
    case Step::kSkip:
      return absl::StrCat("skip ", step.contribution);
    case Step::kReplace:
      return absl::StrCat("new weights for round ", step.round.value());
    case Step::kApplyAlone:
      return absl::StrCat("update ", step.call.step, " with ", step.contribution);
    case Step::kSum:
      return absl::StrCat("norm of round ", step.round.value());
    case Step::kApply:
      return absl::StrCat("update ", step.call.step, " for round ", step.round.value(),
                          step.rescale == 1.0f ? "" : absl::StrCat(", sum times ", step.rescale),
                          step.call.gradient_scale == 1.0f
                              ? ""
                              : absl::StrCat(", clipped to ", step.call.gradient_scale),
                          step.has_update ? "" : ", with nothing");
  }
  return "";
}

ContributionKey Key(int worker, int64_t round, int incarnation = 1) {
  return {.worker = WorkerId(worker),
          .incarnation = Incarnation(incarnation),
          .round = Round(round),
          .base_version = Version(round)};
}

// Fixture with one bucket. There is no owner that computes: the tests compare texts of the bucket's
// effects and steps.
class BucketProtocolTest : public ::testing::Test {
 protected:
  void Start(const job::JobSpec& job, int num_workers, bool awaits_norm = false,
             const job::FragmentTurn& turn = {}) {
    job_ = job;
    policy_ = sync::MakeBucketPolicy(job_);
    bucket_.emplace(BucketProtocol::Config{.policy = policy_.get(),
                                           .job = &job_,
                                           .awaits_norm = awaits_norm,
                                           .turn = turn,
                                           .bucket = 7});
    bucket_->OnWeights(Round(0), Version(0), {});
    std::vector<sync::RosterMember> members;
    for (int worker = 1; worker <= num_workers; ++worker) {
      members.push_back({WorkerId(worker), Incarnation(1), 0});
    }
    roster_.SetMembers(ViewId(1), members);
    bucket_->OnRoster(roster_.Now());
    Words();
  }

  void Open(int64_t round, const std::vector<int64_t>& samples) {
    sync::RoundPlan plan{
        .round = Round(round), .view = ViewId(1), .roster = {}, .learning_rate = 0.1};
    for (size_t i = 0; i < samples.size(); ++i) {
      plan.roster.push_back({WorkerId(static_cast<uint32_t>(i + 1)), Incarnation(1), samples[i]});
    }
    roster_.Open(plan, bucket_->round());
    bucket_->OnRoster(roster_.Now());
  }

  void Drop(int worker) {
    roster_.Drop(WorkerId(worker), Incarnation(1));
    bucket_->OnRoster(roster_.Now());
  }

  // Returns the texts of the effects and steps since the last call. Ends each step at once. Norms
  // and updates do not end if the test holds them back.
  std::vector<std::string> Words() {
    std::vector<std::string> words;
    const auto take_effects = [&] {
      for (const BucketEffect& effect : bucket_->effects()) words.push_back(Text(effect));
      bucket_->effects().clear();
    };
    while (true) {
      take_effects();
      const BucketStep step = bucket_->NextStep();
      take_effects();
      if (step.kind == Step::kNone) return words;
      last_step_ = step;
      words.push_back(Text(step));
      if (step.kind == Step::kApplyAlone || step.kind == Step::kApply) {
        if (holds_update_) return words;
        bucket_->OnUpdated();
      }
      if (step.kind == Step::kTakeWeights) {
        bucket_->OnTaken(step.contribution, first_, absl::OkStatus());
      }
      if (step.kind == Step::kReplace) bucket_->OnReplaced();
    }
  }

  job::JobSpec job_;
  std::unique_ptr<const sync::BucketPolicy> policy_;
  ShardRoster roster_;
  std::optional<BucketProtocol> bucket_;
  BucketStep last_step_;
  ContributionKey first_;      // key of first weights, or of their state
  bool holds_update_ = false;  // updates are under way until the test calls OnUpdated()
};

TEST_F(BucketProtocolTest, SumsInOrderOfWorkersWeighedBySamples) {
  Start(JobOf(job::Mode::kSync), 2);
  Open(0, {1, 3});
  bucket_->OnPush(20, Key(2, 0));
  EXPECT_THAT(Words(), ElementsAre("slot for 20"));
  bucket_->OnSlot(20);
  bucket_->OnArrived(2, Key(2, 0));
  EXPECT_THAT(Words(), IsEmpty()) << "worker 1 comes first";
  EXPECT_THAT(bucket_->WaitingFor(), HasSubstr("waits for workers 1, 2"));
  bucket_->OnPush(10, Key(1, 0));
  EXPECT_THAT(Words(), ElementsAre("slot for 10 in turn"));
  bucket_->OnSlot(10);
  bucket_->OnArrived(1, Key(1, 0));
  EXPECT_THAT(Words(), ElementsAre("counted 1", "add 1 times 0.25", "counted 2", "add 2 times 0.75",
                                   "update 1 for round 0"));
  EXPECT_EQ(bucket_->round(), Round(1));
  EXPECT_EQ(bucket_->version(), Version(1));
}

// A sync job whose programs bring the rates of its steps. Its own rate is 0.5.
job::JobSpec JobOfProgramRates() {
  job::JobSpec job = JobOf(job::Mode::kSync);
  job.model = {"client", params::ClientModelSpec{}};
  job.schedule.kind = job::ScheduleKind::kProgram;
  return job;
}

ContributionKey KeyWithRate(int worker, int64_t round, double rate) {
  ContributionKey key = Key(worker, round);
  key.learning_rate = rate;
  return key;
}

TEST_F(BucketProtocolTest, RateOfTheFirstContributionHoldsTimesTheScaleOfTheJob) {
  Start(JobOfProgramRates(), 3);
  Open(0, {1, 1, 1});  // the plan has the rate 0.1: the scale is 0.2
  bucket_->OnArrived(3, KeyWithRate(3, 0, 4.0 * (1 + 1e-9)));
  bucket_->OnArrived(2, KeyWithRate(2, 0, 4.0));
  bucket_->OnArrived(1, Key(1, 0));
  holds_update_ = true;
  EXPECT_THAT(Words(),
              ElementsAre("counted 1", "add 1 times 0.333333", "counted 2", "add 2 times 0.333333",
                          "counted 3", "add 3 times 0.333333", "update 1 for round 0"));
  EXPECT_DOUBLE_EQ(last_step_.call.learning_rate, 0.8);
  bucket_->OnUpdated();
  Open(1, {1, 1, 1});
  for (int worker = 1; worker <= 3; ++worker) bucket_->OnArrived(worker, Key(worker, 1));
  Words();
  EXPECT_EQ(last_step_.call.learning_rate, 0.1) << "no contribution has a rate";
}

TEST_F(BucketProtocolTest, ContributionWithAnotherRateIsRefusedBeforeItIsSummed) {
  Start(JobOfProgramRates(), 3);
  Open(0, {1, 1, 1});
  ContributionKey skipped = KeyWithRate(1, 0, 7.0);
  skipped.num_samples = messages::kSkippedSamples;
  bucket_->OnArrived(1, skipped);
  bucket_->OnArrived(2, KeyWithRate(2, 0, 0.0));
  bucket_->OnArrived(3, KeyWithRate(3, 0, 1e-9));
  EXPECT_THAT(Words(), ElementsAre("counted 1", "skip 1", "counted 2", "add 2 times 0.333333",
                                   "refuse 3: FAILED_PRECONDITION"));
  EXPECT_THAT(bucket_->Missing(), ElementsAre(WorkerId(3)));
  holds_update_ = true;
  Drop(3);
  Words();
  EXPECT_EQ(last_step_.call.learning_rate, 0.0);
}

ContributionKey KeyWithWeight(int worker, int64_t round, int64_t weight) {
  ContributionKey key = Key(worker, round);
  key.weight = weight;
  return key;
}

TEST_F(BucketProtocolTest, WeightsOfProgramsAreTheDivisorInPlaceOfSamples) {
  Start(JobOf(job::Mode::kSync), 2);
  Open(0, {4, 4});
  bucket_->OnArrived(1, KeyWithWeight(1, 0, 4));
  bucket_->OnArrived(2, KeyWithWeight(2, 0, 60));
  // 4 / 64 and 60 / 64 of the two.
  EXPECT_THAT(Words(), ElementsAre("counted 1", "add 1 times 0.5", "counted 2", "add 2 times 7.5",
                                   "update 1 for round 0, sum times 0.125"));
  Open(1, {4, 4});
  bucket_->OnArrived(1, KeyWithWeight(1, 1, 9));
  bucket_->OnArrived(2, KeyWithWeight(2, 1, 9));
  EXPECT_THAT(Words(), ElementsAre("counted 1", "add 1 times 0.5", "counted 2", "add 2 times 0.5",
                                   "update 2 for round 1"));
}

TEST_F(BucketProtocolTest, ContributionOfWeightZeroCountsAndChangesNothing) {
  Start(JobOf(job::Mode::kSync), 2);
  Open(0, {4, 4});
  bucket_->OnArrived(1, KeyWithWeight(1, 0, 0));
  bucket_->OnArrived(2, KeyWithWeight(2, 0, 8));
  EXPECT_THAT(Words(), ElementsAre("counted 1", "add 1 times 0", "counted 2", "add 2 times 4",
                                   "update 1 for round 0, sum times 0.25"));
  Open(1, {4, 4});
  bucket_->OnArrived(1, KeyWithWeight(1, 1, 0));
  bucket_->OnArrived(2, KeyWithWeight(2, 1, 0));
  EXPECT_THAT(Words(), ElementsAre("counted 1", "add 1 times 0", "counted 2", "add 2 times 0",
                                   "update 1 for round 1, with nothing"));
  EXPECT_EQ(bucket_->version(), Version(1));
}

TEST_F(BucketProtocolTest, ContributionWithoutAWeightIsRefusedAmongThoseWithOne) {
  Start(JobOf(job::Mode::kSync), 3);
  Open(0, {4, 4, 4});
  ContributionKey skipped = Key(1, 0);
  skipped.num_samples = messages::kSkippedSamples;
  bucket_->OnArrived(1, skipped);
  bucket_->OnArrived(2, KeyWithWeight(2, 0, 4));
  bucket_->OnArrived(3, Key(3, 0));
  EXPECT_THAT(Words(),
              ElementsAre("counted 1", "skip 1", "counted 2", _, "refuse 3: FAILED_PRECONDITION"));
  Drop(3);
  Words();
  Open(1, {4, 4});
  bucket_->OnArrived(1, Key(1, 1));
  EXPECT_THAT(Words(), ElementsAre("counted 1", "add 1 times 0.5")) << "it is another round";
}

TEST_F(BucketProtocolTest, ContributionWithAWeightIsRefusedAmongThoseWithout) {
  Start(JobOf(job::Mode::kSync), 2);
  Open(0, {4, 4});
  bucket_->OnArrived(1, Key(1, 0));
  bucket_->OnArrived(2, KeyWithWeight(2, 0, 4));
  EXPECT_THAT(Words(),
              ElementsAre("counted 1", "add 1 times 0.5", "refuse 2: FAILED_PRECONDITION"));
}

TEST_F(BucketProtocolTest, WeightOfAReplayedContributionIsCountedAsBefore) {
  Start(JobOf(job::Mode::kSync), 2);
  Open(0, {4, 4});
  bucket_->OnArrived(1, KeyWithWeight(1, 0, 10));
  EXPECT_THAT(Words(), ElementsAre("counted 1", "add 1 times 0.5"));
  const BucketStep replayed = last_step_;
  Start(JobOf(job::Mode::kSync), 2);
  EXPECT_THAT(bucket_->Replay(replayed, KeyWithWeight(1, 0, 10)), IsOkAndHolds(true));
  Open(0, {4, 4});
  bucket_->OnArrived(2, KeyWithWeight(2, 0, 30));
  EXPECT_THAT(Words(),
              ElementsAre("counted 2", "add 2 times 1.5", "update 1 for round 0, sum times 0.5"));
}

TEST_F(BucketProtocolTest, RateOfAReplayedContributionHolds) {
  Start(JobOfProgramRates(), 2);
  Open(0, {1, 1});
  bucket_->OnArrived(1, KeyWithRate(1, 0, 0.25));
  EXPECT_THAT(Words(), ElementsAre("counted 1", "add 1 times 0.5"));
  const BucketStep replayed = last_step_;
  Start(JobOfProgramRates(), 2);
  EXPECT_THAT(bucket_->Replay(replayed, KeyWithRate(1, 0, 0.25)), IsOkAndHolds(true));
  Open(0, {1, 1});
  bucket_->OnArrived(2, KeyWithRate(2, 0, 0.5));
  EXPECT_THAT(Words(), ElementsAre("refuse 2: FAILED_PRECONDITION"));
  Drop(2);
  Words();
  EXPECT_DOUBLE_EQ(last_step_.call.learning_rate, 0.05);
}

TEST_F(BucketProtocolTest, ThoseWhoAreLostLeaveTheRightDivisorAndWhatTheyBroughtStays) {
  Start(JobOf(job::Mode::kSync), 3);
  Open(0, {2, 3, 5});
  bucket_->OnArrived(1, Key(1, 0));
  bucket_->OnArrived(2, Key(2, 0));
  EXPECT_THAT(Words(), ElementsAre("counted 1", "add 1 times 0.2", "counted 2", "add 2 times 0.3"));
  Drop(2);
  EXPECT_THAT(Words(), IsEmpty());
  Drop(3);
  EXPECT_THAT(Words(), ElementsAre("update 1 for round 0, sum times 2"));
}

TEST_F(BucketProtocolTest, ARoundThatNobodyContributesToIsOverAndMakesNoVersion) {
  Start(JobOf(job::Mode::kSync), 1);
  Open(0, {1});
  bucket_->OnRead(1, WorkerId(), Incarnation(), Round(1));
  Words();
  Drop(1);
  EXPECT_THAT(Words(), ElementsAre("notice", "update 1 for round 0, with nothing", "read 1"));
  EXPECT_EQ(bucket_->round(), Round(1));
  EXPECT_EQ(bucket_->version(), Version(0));
}

ContributionKey SkippedKey(int worker, int64_t round) {
  ContributionKey key = Key(worker, round);
  key.num_samples = messages::kSkippedSamples;
  return key;
}

TEST_F(BucketProtocolTest, ASkippedStepCountsWithoutWeight) {
  Start(JobOf(job::Mode::kSync), 3);
  Open(0, {2, 3, 5});
  bucket_->OnArrived(1, Key(1, 0));
  bucket_->OnArrived(2, SkippedKey(2, 0));
  bucket_->OnArrived(3, SkippedKey(2, 0));
  EXPECT_THAT(Words(),
              ElementsAre("counted 1", "add 1 times 0.2", "counted 2", "skip 2", "duplicate 3"));
  EXPECT_THAT(bucket_->Missing(), ElementsAre(WorkerId(3)));
  EXPECT_TRUE(bucket_->IsSettled(Round(0), WorkerId(2)));
  bucket_->OnArrived(4, Key(3, 0));
  EXPECT_THAT(Words(), ElementsAre("counted 4", "add 4 times 0.5",
                                   "update 1 for round 0, sum times 1.42857"));
  // After the update, a repeat is a duplicate, whether the worker's contribution was skipped or
  // added.
  bucket_->OnPush(5, Key(2, 0));
  EXPECT_THAT(Words(), ElementsAre("discard 5: duplicate"));
}

TEST_F(BucketProtocolTest, NothingIsMissingFromARoundThatIsNotAboutTheBucket) {
  job::JobSpec job = JobOf(job::Mode::kLocalSgd);
  job.fragments = 2;
  Start(job, 1, /*awaits_norm=*/false, {.fragment = 0, .num_fragments = 2});
  Open(0, {1});
  bucket_->OnArrived(1, Key(1, 0));
  EXPECT_FALSE(bucket_->IsSettled(Round(0), WorkerId(1)));
  // This bucket takes no part in round 1, so it needs no contribution to round 1.
  EXPECT_TRUE(bucket_->IsSettled(Round(1), WorkerId(1)));
  EXPECT_THAT(Words(), ElementsAre("counted 1", "add 1 times 1", "update 1 for round 0"));
  EXPECT_TRUE(bucket_->IsSettled(Round(0), WorkerId(1)));
  EXPECT_FALSE(bucket_->IsSettled(Round(2), WorkerId(1)));
}

TEST_F(BucketProtocolTest, ARoundOfSkippedStepsMakesNoVersion) {
  Start(JobOf(job::Mode::kSync), 2, /*awaits_norm=*/true);
  Open(0, {1, 1});
  bucket_->OnArrived(1, SkippedKey(1, 0));
  bucket_->OnArrived(2, SkippedKey(2, 0));
  bucket_->OnRead(3, WorkerId(), Incarnation(), Round(1));
  EXPECT_THAT(Words(),
              ElementsAre("counted 1", "skip 1", "counted 2", "skip 2", "norm of round 0"));
  bucket_->OnNorm(Round(0), 0.0);
  EXPECT_THAT(Words(), ElementsAre("update 1 for round 0, with nothing", "read 3"));
  EXPECT_EQ(bucket_->round(), Round(1));
  EXPECT_EQ(bucket_->version(), Version(0));
}

TEST_F(BucketProtocolTest, AnAsynchronousSkippedStepMakesNoUpdate) {
  Start(JobOf(job::Mode::kAsync), 2);
  bucket_->OnArrived(1, SkippedKey(1, 0));
  ContributionKey next = Key(1, 1);
  next.base_version = Version(0);
  bucket_->OnArrived(2, next);
  bucket_->OnArrived(3, SkippedKey(1, 0));
  EXPECT_THAT(Words(),
              ElementsAre("counted 1", "skip 1", "duplicate 3", "counted 2", "update 1 with 2"));
  EXPECT_EQ(bucket_->version(), Version(1));
}

// The round was opened and ended while this server was not connected to the coordinator.
TEST_F(BucketProtocolTest, ARoundWhoseOpeningHasMissedTheServerDoesNotHoldUpTheLastCheckpoint) {
  Start(JobOf(job::Mode::kSync), 1);
  Drop(1);
  bucket_->OnCapture(1, Round(1));
  EXPECT_THAT(Words(), IsEmpty());
  roster_.EndBefore(Round(1));
  bucket_->OnRoster(roster_.Now());
  EXPECT_THAT(Words(), ElementsAre("notice", "update 1 for round 0, with nothing", "capture 1"));
}

TEST_F(BucketProtocolTest, ARepeatIsADuplicateBeforeAndAfterTheUpdate) {
  Start(JobOf(job::Mode::kSync), 2);
  Open(0, {1, 1});
  Words();
  bucket_->OnArrived(1, Key(1, 0));
  bucket_->OnArrived(2, Key(1, 0));
  bucket_->OnPush(3, Key(1, 0));
  EXPECT_THAT(Words(), ElementsAre("slot for 3 in turn", "counted 1", "add 1 times 0.5",
                                   "discard 3: duplicate", "duplicate 2"));
  bucket_->OnArrived(4, Key(2, 0));
  EXPECT_THAT(Words(), ElementsAre("counted 4", "add 4 times 0.5", "update 1 for round 0"));
  bucket_->OnPush(5, Key(2, 0));
  EXPECT_THAT(Words(), ElementsAre("discard 5: duplicate"));
}

TEST_F(BucketProtocolTest, AQuorumIsEnoughAndTheRestIsLate) {
  Start(JobOf(job::Mode::kSync, /*quorum=*/1), 2);
  Open(0, {1, 1});
  Words();
  bucket_->OnPush(1, Key(1, 0));
  EXPECT_THAT(Words(), ElementsAre("slot for 1 in turn"));
  bucket_->OnArrived(2, Key(2, 0));
  EXPECT_THAT(Words(), ElementsAre("counted 2", "add 2 times 0.5", "discard 1: late",
                                   "update 1 for round 0, sum times 2"));
}

TEST_F(BucketProtocolTest, WhatComesDuringAnUpdateIsOfTheNextRoundOrLate) {
  Start(JobOf(job::Mode::kSync, /*quorum=*/1), 2);
  holds_update_ = true;
  Open(0, {1, 1});
  bucket_->OnArrived(1, Key(1, 0));
  Words();
  EXPECT_TRUE(bucket_->is_writing());
  Open(1, {1, 1});
  bucket_->OnPush(2, Key(2, 0));
  bucket_->OnPush(3, Key(1, 1));
  bucket_->OnRead(4, WorkerId(1), Incarnation(1), Round(0));
  bucket_->OnCapture(5, std::nullopt);
  EXPECT_THAT(Words(), ElementsAre("discard 2: late"));
  bucket_->OnUpdated();
  EXPECT_THAT(Words(), ElementsAre("slot for 3 in turn", "read 4", "capture 5"));
}

TEST_F(BucketProtocolTest, TheNextRoundIsHeldUntilItIsOpenAndThoseBeyondAreRefused) {
  Start(JobOf(job::Mode::kSync), 1);
  bucket_->OnPush(1, Key(1, 0));
  EXPECT_THAT(Words(), IsEmpty());
  Open(0, {1});
  EXPECT_THAT(Words(), ElementsAre("slot for 1 in turn"));
  bucket_->OnPush(2, Key(1, 1));
  bucket_->OnPush(3, Key(1, 2));
  EXPECT_THAT(Words(), ElementsAre("refuse 3: ABORTED"));
}

TEST_F(BucketProtocolTest, AClippedUpdateWaitsForTheNormOfItsRound) {
  Start(JobOf(job::Mode::kSync), 1, /*awaits_norm=*/true);
  Open(0, {1});
  bucket_->OnArrived(1, Key(1, 0));
  EXPECT_THAT(Words(), ElementsAre("counted 1", "add 1 times 1", "norm of round 0"));
  EXPECT_THAT(bucket_->WaitingFor(), HasSubstr("to compute the gradient's norm"));
  bucket_->OnNorm(Round(3), 1.0);
  EXPECT_THAT(Words(), IsEmpty()) << "of another round";
  bucket_->OnNorm(Round(0), 16.0);
  EXPECT_THAT(Words(), ElementsAre("update 1 for round 0, clipped to 0.25"));
}

// The roster has no plan of round 0, before and after the restart.
TEST_F(BucketProtocolTest, ASumOfNothingThatIsReplayedAsksForItsNormAgain) {
  Start(JobOf(job::Mode::kSync), 1, /*awaits_norm=*/true);
  Drop(1);
  roster_.EndBefore(Round(1));
  bucket_->OnRoster(roster_.Now());
  const BucketStep sum = bucket_->NextStep();
  EXPECT_EQ(Text(sum), "norm of round 0");
  Start(JobOf(job::Mode::kSync), 1, /*awaits_norm=*/true);
  EXPECT_THAT(bucket_->Replay(sum, ContributionKey()), IsOkAndHolds(true));
  bucket_->OnRoster(roster_.Now());
  EXPECT_THAT(Words(), ElementsAre("norm of round 0"));
  bucket_->OnNorm(Round(0), 4.0);
  EXPECT_THAT(Words(), ElementsAre("update 1 for round 0, clipped to 0.5, with nothing"));
}

TEST_F(BucketProtocolTest, ANormThatIsNotToBeHadIsAskedForAgain) {
  Start(JobOf(job::Mode::kSync), 2, /*awaits_norm=*/true);
  Open(0, {1, 1});
  bucket_->OnArrived(1, Key(1, 0));
  Drop(2);
  EXPECT_THAT(Words(), ElementsAre("counted 1", "add 1 times 0.5", "norm of round 0"));
  bucket_->OnNorm(Round(0), absl::UnavailableError("the connection is cut"));
  EXPECT_THAT(Words(), IsEmpty());
  EXPECT_THAT(bucket_->WaitingFor(), HasSubstr("the connection is cut"));
  bucket_->OnTick();
  EXPECT_THAT(Words(), ElementsAre("norm of round 0")) << "the sum is rescaled once only";
  bucket_->OnTick();
  EXPECT_THAT(Words(), IsEmpty()) << "it is under way";
  bucket_->OnNorm(Round(0), 0.25);
  EXPECT_THAT(Words(), ElementsAre("update 1 for round 0"));
}

TEST_F(BucketProtocolTest, AnUnannouncedLifeIsHeldUntilItIsAnnouncedOrToldToTryAgain) {
  Start(JobOf(job::Mode::kSync), 1);
  Open(0, {1});
  bucket_->OnPush(1, Key(9, 0));
  bucket_->OnPush(2, Key(1, 0, /*incarnation=*/5));
  EXPECT_THAT(Words(), IsEmpty());
  bucket_->OnTick();
  roster_.SetMembers(ViewId(2), {{WorkerId(1), Incarnation(5), 0}});
  bucket_->OnRoster(roster_.Now());
  EXPECT_THAT(Words(), testing::Contains("refuse 2: FAILED_PRECONDITION")) << "not in the roster";
  bucket_->OnTick();
  EXPECT_THAT(Words(), IsEmpty());
  bucket_->OnTick();
  EXPECT_THAT(Words(), ElementsAre("refuse 1: UNAVAILABLE"));
}

TEST_F(BucketProtocolTest, AReadOfAnUnannouncedLifeThatWaitsIsToldToTryAgain) {
  Start(JobOf(job::Mode::kSync), 1);
  Open(0, {1});
  bucket_->OnRead(1, WorkerId(9), Incarnation(1), Round(5));
  bucket_->OnRead(2, WorkerId(1), Incarnation(1), Round(5));
  bucket_->OnRead(3, WorkerId(), Incarnation(), Round(5));  // a read for an export
  for (int tick = 0; tick < 2; ++tick) bucket_->OnTick();
  EXPECT_THAT(Words(), IsEmpty());
  for (int tick = 0; tick < 9; ++tick) bucket_->OnTick();
  EXPECT_THAT(Words(), ElementsAre("no answer 1: UNAVAILABLE"));
}

TEST_F(BucketProtocolTest, CallsOfUnannouncedLivesAreHeldInABoundedNumber) {
  Start(JobOf(job::Mode::kSync), 1);
  Open(0, {1});
  CallId call = 0;
  for (int i = 0; i < 8; ++i) bucket_->OnPush(++call, Key(9, 0));
  EXPECT_THAT(Words(), IsEmpty());
  bucket_->OnPush(++call, Key(9, 0));
  bucket_->OnRead(++call, WorkerId(9), Incarnation(1), Round(5));
  EXPECT_THAT(Words(), ElementsAre("refuse 9: UNAVAILABLE", "no answer 10: UNAVAILABLE"));
  for (int worker = 100; worker < 1000; ++worker) {
    bucket_->OnRead(++call, WorkerId(worker), Incarnation(1), Round(5));
  }
  EXPECT_THAT(Words(), testing::SizeIs(900 - (256 - 8)));
  bucket_->OnRead(++call, WorkerId(1), Incarnation(1), Round(5));
  bucket_->OnPush(++call, Key(1, 0));
  EXPECT_THAT(Words(), testing::Each(testing::Not(HasSubstr("UNAVAILABLE"))))
      << "members have their own room";
}

TEST_F(BucketProtocolTest, ARestoredBucketCollectsTheClustersRoundWhateverItsVersion) {
  Start(JobOf(job::Mode::kSync), 1);
  bucket_->OnWeights(Round(10000), Version(9998), {{WorkerId(1), {Incarnation(1), Round(9997)}}});
  Open(10000, {1});
  bucket_->OnRead(1, WorkerId(1), Incarnation(1), Round(10000));
  bucket_->OnPush(2, Key(1, 9997));
  bucket_->OnArrived(3, Key(1, 10000));
  EXPECT_THAT(Words(), ElementsAre("read 1", "discard 2: duplicate", "counted 3", "add 3 times 1",
                                   "update 9999 for round 10000"));
  EXPECT_EQ(bucket_->round(), Round(10001));
  EXPECT_EQ(bucket_->version(), Version(9999));
}

TEST_F(BucketProtocolTest, ACaptureHasWhatItsVersionHolds) {
  Start(JobOf(job::Mode::kSync), 2);
  Open(0, {1, 1});
  bucket_->OnArrived(1, Key(1, 0));
  Words();
  bucket_->OnCapture(5, Round(0));
  EXPECT_THAT(Words(), ElementsAre("capture 5"));
  EXPECT_THAT(bucket_->counted(), IsEmpty()) << "counted, and in no version yet";
  bucket_->OnCapture(6, Round(1));
  EXPECT_THAT(Words(), IsEmpty());
  bucket_->OnArrived(2, Key(2, 0));
  EXPECT_THAT(Words(), testing::Contains("capture 6"));
  EXPECT_EQ(bucket_->counted().size(), 2);
  bucket_->OnCapture(7, Round(0));
  EXPECT_THAT(Words(), ElementsAre("no answer 7: FAILED_PRECONDITION"));
}

TEST_F(BucketProtocolTest, NewWeightsWaitForTheEndOfTheRoundBeforeAndMakeNoVersion) {
  Start(JobOf(job::Mode::kSync), 1);
  Open(0, {1});
  bucket_->OnReplacement(Round(1));
  EXPECT_THAT(Words(), IsEmpty());
  bucket_->OnRead(1, WorkerId(), Incarnation(), Round(1));
  bucket_->OnCapture(2, Round(1));
  bucket_->OnArrived(3, Key(1, 0));
  // The read and the capture were asked for first, so they get the weights of the round that is
  // over.
  EXPECT_THAT(Words(), ElementsAre("counted 3", "add 3 times 1", "update 1 for round 0", "read 1",
                                   "capture 2", "new weights for round 1"));
  EXPECT_EQ(bucket_->round(), Round(1));
  EXPECT_EQ(bucket_->version(), Version(1));
}

TEST_F(BucketProtocolTest, NobodyReadsWhileNewWeightsAreWritten) {
  Start(JobOf(job::Mode::kSync), 1);
  bucket_->OnReplacement(Round(0));
  EXPECT_EQ(bucket_->NextStep().kind, Step::kReplace);
  bucket_->OnRead(1, WorkerId(), Incarnation(), Round(0));
  EXPECT_THAT(bucket_->effects(), IsEmpty());
  bucket_->OnReplaced();
  EXPECT_THAT(Words(), ElementsAre("read 1"));
}

TEST_F(BucketProtocolTest, NewWeightsThatAreBeingWrittenAreNotRefusedWhenTheBucketCloses) {
  Start(JobOf(job::Mode::kSync), 1);
  bucket_->OnReplacement(Round(0));
  ASSERT_EQ(bucket_->NextStep().kind, Step::kReplace);
  bucket_->Close(absl::AbortedError("diverged"));
  EXPECT_THAT(Words(), IsEmpty()) << "their writer answers";
  bucket_->OnReplaced();
  EXPECT_THAT(Words(), IsEmpty());
  bucket_->OnReplacement(Round(0));
  EXPECT_THAT(Words(), ElementsAre("no new weights: ABORTED"));
}

TEST_F(BucketProtocolTest, NewWeightsComeTooLateForARoundThatHasBegun) {
  Start(JobOf(job::Mode::kSync), 2);
  Open(0, {1, 1});
  bucket_->OnArrived(1, Key(1, 0));
  Words();
  bucket_->OnReplacement(Round(0));
  EXPECT_THAT(Words(), ElementsAre("no new weights: FAILED_PRECONDITION"));
  bucket_->OnArrived(2, Key(2, 0));
  Words();
  bucket_->OnReplacement(Round(0));
  EXPECT_THAT(Words(), ElementsAre("no new weights: FAILED_PRECONDITION"));
  bucket_->OnReplacement(Round(1));
  EXPECT_THAT(Words(), ElementsAre("new weights for round 1"));
}

TEST_F(BucketProtocolTest, ARoundThatNobodyIsToContributeToIsOverWithoutAWord) {
  Start(JobOf(job::Mode::kSync), 1);
  Open(0, {});
  EXPECT_THAT(Words(), ElementsAre("update 1 for round 0, with nothing"));
  EXPECT_EQ(bucket_->round(), Round(1));
  EXPECT_EQ(bucket_->version(), Version(0));
}

TEST_F(BucketProtocolTest, EachAsynchronousContributionIsAnUpdate) {
  job::JobSpec job = JobOf(job::Mode::kAsync);
  job.staleness_scaling = job::StalenessScaling::kInverse;
  Start(job, 2);
  bucket_->OnArrived(1, Key(1, 0));
  ContributionKey stale = Key(2, 1);
  stale.base_version = Version(0);
  bucket_->OnArrived(2, stale);
  bucket_->OnArrived(3, stale);
  bucket_->OnPush(4, Key(1, 5));
  EXPECT_THAT(Words(), ElementsAre("refuse 4: FAILED_PRECONDITION", "counted 1", "update 1 with 1",
                                   "counted 2", "update 2 with 2", "duplicate 3"));
  EXPECT_EQ(bucket_->round(), Round(0)) << "rounds are the workers' own";
}

TEST_F(BucketProtocolTest, AClientSuppliesTheFirstWeightsOnceForEachLife) {
  job_ = JobOf(job::Mode::kSync);
  policy_ = sync::MakeBucketPolicy(job_);
  bucket_.emplace(BucketProtocol::Config{.policy = policy_.get(), .job = &job_});
  bucket_->OnRead(1, WorkerId(), Incarnation(), Round(0));
  bucket_->AwaitClientWeights();
  bucket_->OnRead(2, WorkerId(), Incarnation(), Round(0));
  bucket_->OnPush(3, Key(1, 0));
  EXPECT_THAT(Words(), ElementsAre("no answer 1: UNAVAILABLE", "no answer 2: NOT_FOUND",
                                   "refuse 3: UNAVAILABLE"));
  ContributionKey first = Key(1, 0);
  first.kind = messages::ContributionKind::kInitialWeights;
  bucket_->OnPush(4, first);
  bucket_->OnArrived(5, first);
  bucket_->OnArrived(6, first);
  EXPECT_THAT(Words(), ElementsAre("slot for 4 in turn", "take 5", "counted 5",
                                   "slot for 4 in turn", "duplicate 6"));
  roster_.SetMembers(ViewId(1), {{WorkerId(1), Incarnation(1), 0}});
  bucket_->OnRoster(roster_.Now());
  bucket_->OnArrived(7, first);
  EXPECT_THAT(Words(),
              ElementsAre("refuse 4: FAILED_PRECONDITION", "refuse 7: FAILED_PRECONDITION"));
}

TEST_F(BucketProtocolTest, FirstWeightsBeginWithTheVersionOfTheirState) {
  job_ = JobOf(job::Mode::kSync);
  policy_ = sync::MakeBucketPolicy(job_);
  bucket_.emplace(BucketProtocol::Config{.policy = policy_.get(), .job = &job_});
  bucket_->AwaitClientWeights();
  first_ = Key(1, 0);
  first_.kind = messages::ContributionKind::kInitialWeights;
  first_.base_version = Version(6);
  first_.state_vector = 1;
  bucket_->OnArrived(1, first_);
  bucket_->OnArrived(2, first_);
  EXPECT_THAT(Words(), ElementsAre("take 1", "counted 1", "duplicate 2"));
  EXPECT_FALSE(bucket_->has_weights());
  first_.state_vector = 0;
  bucket_->OnArrived(3, first_);
  EXPECT_THAT(Words(), ElementsAre("take 3", "counted 3"));
  EXPECT_TRUE(bucket_->has_weights());
  EXPECT_EQ(bucket_->version(), Version(6));
  // A later incarnation supplies state and weights again, from the first vector.
  first_.incarnation = Incarnation(2);
  first_.state_vector = 1;
  bucket_->OnArrived(4, first_);
  EXPECT_THAT(Words(), ElementsAre("take 4", "counted 4"));
}

TEST_F(BucketProtocolTest, WhoseLifeIsOverSuppliesNoWeightsBesideAnother) {
  job_ = JobOf(job::Mode::kSync);
  policy_ = sync::MakeBucketPolicy(job_);
  bucket_.emplace(BucketProtocol::Config{.policy = policy_.get(), .job = &job_});
  bucket_->AwaitClientWeights();
  ContributionKey late = Key(1, 0);
  late.kind = messages::ContributionKind::kInitialWeights;
  bucket_->OnPush(1, late);
  EXPECT_THAT(Words(), ElementsAre("slot for 1 in turn"));
  Drop(1);
  bucket_->OnArrived(2, late);
  EXPECT_THAT(Words(), ElementsAre("refuse 1: ABORTED", "refuse 2: ABORTED"));
}

TEST_F(BucketProtocolTest, ClosingAnswersEveryCall) {
  Start(JobOf(job::Mode::kSync), 2);
  Open(0, {1, 1});
  bucket_->OnPush(1, Key(1, 0));
  bucket_->OnArrived(2, Key(2, 0));
  bucket_->OnRead(3, WorkerId(1), Incarnation(1), Round(1));
  bucket_->OnCapture(4, Round(1));
  bucket_->OnReplacement(Round(1));
  Words();
  bucket_->Close(absl::AbortedError("diverged"));
  bucket_->OnArrived(5, Key(1, 0));
  bucket_->OnPush(6, Key(1, 0));
  EXPECT_THAT(Words(),
              ElementsAre("refuse 1: ABORTED", "no answer 3: ABORTED", "no answer 4: ABORTED",
                          "refuse 2: ABORTED", "no new weights: ABORTED", "refuse 5: ABORTED",
                          "refuse 6: ABORTED"));
}

// AnyOrder makes workers, a coordinator and an owner of the bucket act in random order:
// - A worker repeats a push, breaks it off, holds it, or goes away.
// - A norm fails.
// - An update takes time.
// - The server restarts with the state that was captured last.
// Each contribution is a 1 at a position of its own, so that the weights count how often each
// contribution is included.
class AnyOrder {
 public:
  AnyOrder(const job::JobSpec& job, bool awaits_norm, uint64_t seed)
      : job_(job),
        policy_(sync::MakeBucketPolicy(job_)),
        awaits_norm_(awaits_norm),
        random_(seed),
        workers_(1 + seed % 4) {
    Restart();
  }

  // Does one random event. Returns false after a failure.
  bool Go() {
    switch (Pick(13)) {
      case 0:
        return Open();
      case 1:
      case 2:
        return Begin(workers_[Pick(workers_.size())]);
      case 3:
      case 4:
        return GiveSlot();
      case 5:
      case 6:
        return Arrive();
      case 7:
        return Flip(0.2) ? Lose(Pick(workers_.size())) : true;
      case 8:
        return Read();
      case 9:
        bucket_->OnTick();
        return Settle();
      case 10:
        return Flip(0.05) ? Restart() : Capture();
      default:
        return Work();
    }
  }

  // Lets all parties act without faults until three more updates are done.
  bool Drain() {
    const int64_t goal = bucket_->version().value() + 3;
    for (int i = 0; i < 4000 && bucket_->version().value() < goal; ++i) {
      bool ok = Open() && GiveSlot() && Arrive() && Work() && Work();
      for (Worker& worker : workers_) ok = ok && Begin(worker);
      if (!ok) return false;
    }
    EXPECT_GE(bucket_->version().value(), goal) << bucket_->WaitingFor();
    return !testing::Test::HasFailure();
  }

  int64_t num_counted() const { return num_counted_; }

 private:
  using Name = std::tuple<WorkerId, Incarnation, Round>;
  struct Worker {
    Incarnation incarnation;
    int64_t round = 0;  // async: the worker's own round
  };
  struct Numbers {
    std::map<Name, int> weights;  // how often each contribution is in the weights
    Round round;
    Version version;
    std::vector<CountedWorker> counted;
  };

  int Pick(size_t count) { return static_cast<int>(random_() % count); }
  bool Flip(double probability) {
    return std::uniform_real_distribution<double>(0.0, 1.0)(random_) < probability;
  }
  static Name NameOf(const ContributionKey& key) {
    return {key.worker, key.incarnation, key.round};
  }

  // Restarts the bucket from the last capture. Some workers get new incarnations. The others go on,
  // and send again what was lost.
  bool Restart() {
    pushes_.clear();
    slots_.clear();
    staged_.clear();
    arrived_.clear();
    reads_.clear();
    step_ = {};
    norm_asked_.reset();
    sum_.clear();
    rescale_ = 1.0;
    acknowledged_.clear();
    roster_ = std::make_unique<ShardRoster>();
    bucket_.emplace(BucketProtocol::Config{
        .policy = policy_.get(), .job = &job_, .awaits_norm = awaits_norm_, .bucket = 0});
    bucket_->OnWeights(saved_.round, saved_.version, saved_.counted);
    weights_ = saved_.weights;
    last_version_ = saved_.version;
    next_round_ = saved_.round.value();
    for (Worker& worker : workers_) {
      if (worker.incarnation == Incarnation() || Flip(0.5)) {
        worker.incarnation = Incarnation(++last_incarnation_);
      }
      worker.round = 0;
    }
    return Announce();
  }

  bool Announce() {
    std::vector<sync::RosterMember> members;
    for (size_t i = 0; i < workers_.size(); ++i) {
      members.push_back({WorkerId(static_cast<uint32_t>(i + 1)), workers_[i].incarnation, 0});
    }
    roster_->SetMembers(ViewId(++view_), members);
    bucket_->OnRoster(roster_->Now());
    return Settle();
  }

  bool Open() {
    if (!policy_->uses_rosters()) return true;
    // The coordinator opens a round only once the round before commits.
    const bool commits = step_.kind != Step::kNone || norm_asked_.has_value();
    if (next_round_ > bucket_->round().value() + (commits ? 1 : 0)) return true;
    // Some rounds open and end while this server is not connected.
    if (Flip(0.05)) ++next_round_;
    sync::RoundPlan plan{Round(next_round_++), ViewId(view_), {}, 0.1};
    for (size_t i = 0; i < workers_.size(); ++i) {
      plan.roster.push_back({WorkerId(static_cast<uint32_t>(i + 1)), workers_[i].incarnation,
                             static_cast<int64_t>(1 + i)});
    }
    roster_->Open(plan, bucket_->round());
    bucket_->OnRoster(roster_->Now());
    return Settle();
  }

  bool Begin(Worker& worker) {
    ContributionKey key = {
        .worker = WorkerId(static_cast<uint32_t>(&worker - workers_.data() + 1)),
        .incarnation = worker.incarnation,
        .round = Round(policy_->uses_rosters()
                           ? std::max<int64_t>(0, bucket_->round().value() + Pick(3) - 1)
                           : worker.round - (worker.round > 0 && Flip(0.2) ? 1 : 0)),
        .base_version = Version(0)};
    // The same contribution always has the same number of samples.
    if ((key.worker.value() + key.round.value()) % 5 == 0)
      key.num_samples = messages::kSkippedSamples;
    pushes_[next_call_] = key;
    bucket_->OnPush(next_call_++, key);
    return Settle();
  }

  bool GiveSlot() {
    if (slots_.empty()) return true;
    auto it = std::next(slots_.begin(), Pick(slots_.size()));
    const CallId call = *it;
    slots_.erase(it);
    bucket_->OnSlot(call);
    staged_.push_back(pushes_.at(call));
    pushes_.erase(call);
    return Settle();
  }

  bool Arrive() {
    if (staged_.empty()) return true;
    const int index = Pick(staged_.size());
    const ContributionKey key = staged_[index];
    staged_.erase(staged_.begin() + index);
    if (Flip(0.1)) return true;  // the stream broke
    arrived_[next_call_] = key;
    bucket_->OnArrived(next_call_++, key);
    return Settle();
  }

  bool Lose(int index) {
    roster_->Drop(WorkerId(static_cast<uint32_t>(index + 1)), workers_[index].incarnation);
    bucket_->OnRoster(roster_->Now());
    if (!Settle()) return false;
    workers_[index].incarnation = Incarnation(++last_incarnation_);
    return Announce();
  }

  bool Read() {
    const Round min_round(std::max<int64_t>(0, bucket_->round().value() + Pick(2) - 1));
    reads_[next_call_] = min_round;
    bucket_->OnRead(next_call_++, WorkerId(), Incarnation(), min_round);
    return Settle();
  }

  bool Capture() {
    bucket_->OnCapture(next_call_++, std::nullopt);
    return Settle();
  }

  // Ends the step that is under way, or answers a request for a norm, or begins the next step.
  bool Work() {
    if (step_.kind != Step::kNone) {
      const Version wanted = bucket_->version() + (step_.has_update ? 1 : 0);
      step_ = {};
      bucket_->OnUpdated();
      EXPECT_EQ(bucket_->version(), wanted);
      return Settle();
    }
    if (norm_asked_.has_value()) {
      const Round round = *norm_asked_;
      norm_asked_.reset();
      if (Flip(0.3)) {
        bucket_->OnNorm(round, absl::UnavailableError("cut"));
        bucket_->OnTick();
      } else {
        bucket_->OnNorm(round, 1.0);
      }
    }
    const BucketStep step = bucket_->NextStep();
    if (!Settle()) return false;
    switch (step.kind) {
      case Step::kNone:
      case Step::kTakeWeights:
      case Step::kReplace:
        break;
      case Step::kAccumulate: {
        const ContributionKey& key = acknowledged_.at(step.contribution);
        EXPECT_EQ(key.round, bucket_->round());
        if (policy_->fixed_order() && !sum_.empty()) {
          EXPECT_LT(std::get<0>(sum_.back().first), key.worker);
        }
        sum_.emplace_back(NameOf(key), step.factor);
        acknowledged_.erase(step.contribution);
        break;
      }
      case Step::kSkip: {
        const Name name = NameOf(acknowledged_.at(step.contribution));
        if (policy_->uses_rosters()) {
          sum_.emplace_back(name, 0.0);
        } else {
          ++weights_[name];
        }
        acknowledged_.erase(step.contribution);
        break;
      }
      case Step::kApplyAlone:
        ++weights_[NameOf(acknowledged_.at(step.contribution))];
        acknowledged_.erase(step.contribution);
        step_ = step;
        break;
      case Step::kSum:
        rescale_ *= step.rescale;
        norm_asked_ = step.round;
        break;
      case Step::kApply: {
        rescale_ *= step.rescale;
        double total = 0.0;
        for (const auto& [name, factor] : sum_) {
          total += factor;
          ++weights_[name];
        }
        EXPECT_EQ(step.has_update, total > 0.0);
        EXPECT_NEAR(total * rescale_, step.has_update ? 1.0 : 0.0, 1e-5) << "the divisor";
        sum_.clear();
        rescale_ = 1.0;
        step_ = step;
        break;
      }
    }
    return !testing::Test::HasFailure();
  }

  bool Settle() {
    for (const BucketEffect& effect : bucket_->effects()) {
      switch (effect.kind) {
        case Effect::kRequestSlot:
          slots_.insert(effect.call);
          break;
        case Effect::kDiscardPush:
          GoOnAfter(pushes_.at(effect.call));
          [[fallthrough]];
        case Effect::kRefusePush:
          slots_.erase(effect.call);
          pushes_.erase(effect.call);
          break;
        case Effect::kAcknowledge:
          if (effect.outcome == PushOutcome::kCounted) {
            const ContributionKey& key = arrived_.at(effect.call);
            EXPECT_EQ(weights_.count(NameOf(key)), 0) << "counted twice";
            for (const auto& [name, factor] : sum_) EXPECT_NE(name, NameOf(key));
            EXPECT_EQ(roster_->Now()->StandingOf(key.worker, key.incarnation),
                      sync::Standing::kMember);
            GoOnAfter(key);
            acknowledged_[effect.call] = key;
            ++num_counted_;
          } else if (effect.outcome == PushOutcome::kDuplicate) {
            EXPECT_TRUE(IsIn(NameOf(arrived_.at(effect.call)))) << "lost";
          }
          arrived_.erase(effect.call);
          break;
        case Effect::kRefuse:
          arrived_.erase(effect.call);
          break;
        case Effect::kRead:
          EXPECT_EQ(step_.kind, Step::kNone) << "is written";
          EXPECT_TRUE(!policy_->uses_rosters() || bucket_->round() >= reads_.at(effect.call));
          break;
        case Effect::kCapture:
          EXPECT_EQ(step_.kind, Step::kNone) << "is written";
          saved_ = {weights_, bucket_->round(), bucket_->version(), bucket_->counted()};
          break;
        case Effect::kRefuseRead:
        case Effect::kRefuseCapture:
        case Effect::kRefuseReplacement:
        case Effect::kNotice:
        case Effect::kFault:
          break;
      }
    }
    bucket_->effects().clear();
    EXPECT_GE(bucket_->version(), last_version_);
    last_version_ = bucket_->version();
    for (const auto& [name, count] : weights_) EXPECT_EQ(count, 1);
    return !testing::Test::HasFailure();
  }

  void GoOnAfter(const ContributionKey& key) {
    Worker& worker = workers_[key.worker.value() - 1];
    worker.round = std::max(worker.round, key.round.value() + 1);
  }

  // Returns true if this contribution, or a later one of the same incarnation, is in the weights.
  bool IsIn(const Name& name) const {
    const auto is_it = [&name](const Name& other) {
      return std::get<0>(other) == std::get<0>(name) && std::get<1>(other) == std::get<1>(name) &&
             std::get<2>(other) >= std::get<2>(name);
    };
    for (const auto& [other, count] : weights_) {
      if (is_it(other)) return true;
    }
    for (const auto& [other, factor] : sum_) {
      if (is_it(other)) return true;
    }
    for (const auto& [call, key] : acknowledged_) {
      if (is_it(NameOf(key))) return true;
    }
    return false;
  }

  const job::JobSpec job_;
  const std::unique_ptr<const sync::BucketPolicy> policy_;
  const bool awaits_norm_;
  std::mt19937_64 random_;
  std::vector<Worker> workers_;
  std::unique_ptr<ShardRoster> roster_;
  std::optional<BucketProtocol> bucket_;
  uint64_t view_ = 0;
  uint64_t last_incarnation_ = 0;
  int64_t next_round_ = 0;
  CallId next_call_ = 0;

  std::map<CallId, ContributionKey> pushes_;
  std::set<CallId> slots_;  // pushes that have requested a slot
  std::vector<ContributionKey> staged_;
  std::map<CallId, ContributionKey> arrived_;       // contributions that arrived, not answered yet
  std::map<CallId, ContributionKey> acknowledged_;  // acknowledged, not added yet
  std::map<CallId, Round> reads_;
  BucketStep step_;  // the step under way
  std::optional<Round> norm_asked_;
  std::vector<std::pair<Name, float>> sum_;
  double rescale_ = 1.0;
  std::map<Name, int> weights_;
  Version last_version_;
  Numbers saved_;
  int64_t num_counted_ = 0;
};

TEST(BucketProtocolAnyOrderTest, EveryAcknowledgedContributionIsInTheWeightsOnce) {
  const job::JobSpec jobs[] = {JobOf(job::Mode::kSync), JobOf(job::Mode::kSync, 1),
                               JobOf(job::Mode::kSync, 2), JobOf(job::Mode::kAsync),
                               JobOf(job::Mode::kLocalSgd)};
  int64_t num_counted = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const job::JobSpec& job = jobs[seed % std::size(jobs)];
    AnyOrder run(job, sync::ClipsMean(job) && seed % 2 == 0, seed);
    for (int event = 0; event < 400; ++event) {
      ASSERT_TRUE(run.Go()) << "seed " << seed << ", event " << event;
    }
    ASSERT_TRUE(run.Drain()) << "seed " << seed;
    num_counted += run.num_counted();
  }
  EXPECT_GT(num_counted, 10000) << "the runs must get somewhere";
}

}  // namespace
}  // namespace lodestar::shard
