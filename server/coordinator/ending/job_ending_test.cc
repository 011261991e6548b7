// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/ending/job_ending.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

namespace lodestar::ending {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const absl::Time kStart = absl::FromUnixSeconds(1'700'000'000);
constexpr absl::Duration kStopTimeout = absl::Minutes(2);
constexpr absl::Duration kLease = absl::Seconds(10);
constexpr absl::Duration kPatience = absl::Minutes(1);
constexpr absl::Duration kMoment = absl::Nanoseconds(1);
const absl::Status kFull = absl::ResourceExhaustedError("out of memory");

class JobEndingTest : public testing::Test {
 protected:
  // Returns IsHeldUp() at the time `now`, for servers that were never away.
  bool IsHeldUp(absl::Time now, bool is_saving = true) const {
    return ending_.IsHeldUp(is_saving, /*is_shard_away=*/false, absl::InfinitePast(), now);
  }

  JobEnding ending_{{.stop_timeout = kStopTimeout, .lease = kLease}};
};

TEST_F(JobEndingTest, PauseKeepsItsBeginningIfItsReasonChanges) {
  ending_.Pause("lunch", kStart);
  ending_.Pause("supper", kStart + absl::Hours(6));
  EXPECT_EQ(ending_.pause()->reason, "supper");
  EXPECT_EQ(ending_.pause()->since, kStart);
  ending_.EndPause();
  EXPECT_FALSE(ending_.is_paused());
}

TEST_F(JobEndingTest, StopEndsThePause) {
  ending_.Pause("lunch", kStart);
  EXPECT_TRUE(ending_.is_paused());
  ending_.RequestStop("psctl stop", kStart);
  EXPECT_FALSE(ending_.pause().has_value());
  EXPECT_EQ(ending_.stop_reason(), "psctl stop");
  EXPECT_EQ(ending_.stop_requested_at(), kStart);
}

TEST_F(JobEndingTest, PausedJobThatStopsIsNotPaused) {
  ending_.FailDiverged(kFull, "diverged");
  ending_.Pause("lunch", kStart);
  EXPECT_FALSE(ending_.is_paused());
}

TEST_F(JobEndingTest, DivergedJobFailsAndStopsWithoutAnOperator) {
  ending_.FailDiverged(kFull, "diverged");
  EXPECT_EQ(ending_.failure(), kFull);
  EXPECT_EQ(ending_.stop_reason(), "diverged");
  EXPECT_FALSE(ending_.stop_requested_at().has_value());
  EXPECT_EQ(ending_.drop_missing_at(), absl::InfiniteFuture());
}

TEST_F(JobEndingTest, FirstFailureOfAServerCounts) {
  EXPECT_TRUE(ending_.FailOnceSaved(kFull));
  EXPECT_FALSE(ending_.FailOnceSaved(absl::InternalError("another")));
  EXPECT_EQ(ending_.failure_once_saved(), kFull);
  EXPECT_TRUE(ending_.failure().ok()) << "the last save comes first";
}

TEST_F(JobEndingTest, StoppedJobWaitsForRoundsAsLongAsItsTimeout) {
  EXPECT_FALSE(IsHeldUp(kStart + absl::Hours(1000))) << "nothing is asked for";
  ending_.RequestStop("psctl stop", kStart);
  EXPECT_FALSE(IsHeldUp(kStart + kStopTimeout - kMoment, /*is_saving=*/false));
  EXPECT_TRUE(IsHeldUp(kStart + kStopTimeout, /*is_saving=*/false));
}

TEST_F(JobEndingTest, LastSaveWaitsForRoundsAndServersForHalfOfThePatience) {
  EXPECT_TRUE(ending_.AwaitSave("shard 1 stops", kPatience, kStart));
  EXPECT_EQ(ending_.hold_reason(), "shard 1 stops");
  const absl::Time half = kStart + kPatience / 2;
  EXPECT_FALSE(IsHeldUp(half - kMoment));
  EXPECT_TRUE(IsHeldUp(half));
  EXPECT_FALSE(IsHeldUp(half, /*is_saving=*/false)) << "it has ended";
  EXPECT_FALSE(ending_.GivesUpServers(half - kMoment));
  EXPECT_TRUE(ending_.GivesUpServers(half));
}

TEST_F(JobEndingTest, ServersAreWaitedForIfNoProcessWaitsToExit) {
  ending_.RequestStop("psctl stop", kStart);
  EXPECT_FALSE(ending_.GivesUpServers(kStart + kStopTimeout));
}

TEST_F(JobEndingTest, WorkersDoNotHoldUpWhatWaitsForAServer) {
  ending_.AwaitSave("shard 1 stops", kPatience, kStart);
  const absl::Time now = kStart + kPatience;
  EXPECT_FALSE(ending_.IsHeldUp(/*is_saving=*/true, /*is_shard_away=*/true, kStart, now));
  EXPECT_FALSE(ending_.IsHeldUp(true, false, now - JobEnding::kHandInTime + kMoment, now));
  EXPECT_TRUE(ending_.IsHeldUp(true, false, now - JobEnding::kHandInTime, now));
}

TEST_F(JobEndingTest, WorkersAreWaitedForUntilTheFirstTimeAndServersUntilTheLast) {
  ending_.AwaitSave("shard 1 stops", kPatience, kStart);
  ending_.AwaitSave("shard 2 stops", 3 * kPatience, kStart);
  EXPECT_EQ(ending_.hold_reason(), "shard 2 stops");
  EXPECT_EQ(ending_.drop_missing_at(), kStart + kPatience / 2);
  EXPECT_FALSE(ending_.GivesUpServers(kStart + 3 * kPatience / 2 - kMoment));
  ending_.AwaitSave("shard 3 stops", kPatience / 2, kStart);
  EXPECT_EQ(ending_.drop_missing_at(), kStart + kPatience / 4);
  EXPECT_FALSE(ending_.GivesUpServers(kStart + 3 * kPatience / 2 - kMoment));
  EXPECT_TRUE(ending_.GivesUpServers(kStart + 3 * kPatience / 2));
}

TEST_F(JobEndingTest, ProcessThatWaitsAlreadyWaitsNoLongerForAskingAgain) {
  ending_.AwaitSave("shard 1 stops", kPatience, kStart);
  ending_.AwaitSave("shard 2 stops", kPatience, kStart);
  EXPECT_FALSE(ending_.AwaitSave("shard 1 stops", kPatience, kStart + kPatience));
  EXPECT_EQ(ending_.hold_reason(), "shard 2 stops");
  EXPECT_TRUE(ending_.GivesUpServers(kStart + kPatience / 2));
}

TEST_F(JobEndingTest, WorkIsHeldUntilTheLastProcessIsForgotten) {
  ending_.AwaitSave("shard 1 stops", kPatience, kStart);
  ending_.AwaitSave("shard 2 stops", kPatience, kStart);
  EXPECT_FALSE(ending_.ForgetAsker("shard 3 stops"));
  EXPECT_FALSE(ending_.ForgetAsker("shard 1 stops"));
  EXPECT_TRUE(ending_.is_work_held());
  EXPECT_TRUE(ending_.ForgetAsker("shard 2 stops"));
  EXPECT_FALSE(ending_.is_work_held());
  EXPECT_FALSE(ending_.ForgetAsker("shard 2 stops")) << "nothing is held";
  EXPECT_EQ(ending_.drop_missing_at(), absl::InfiniteFuture());
  ending_.AwaitSave("shard 1 stops", absl::ZeroDuration(), kStart - kPatience);
  EXPECT_TRUE(ending_.GivesUpServers(kStart)) << "the time of the others is over";
}

TEST_F(JobEndingTest, StopGoesOnIfTheLastProcessIsForgotten) {
  ending_.RequestStop("psctl stop", kStart);
  ending_.AwaitSave("shard 1 stops", 10 * kStopTimeout, kStart);
  EXPECT_TRUE(ending_.ForgetAsker("shard 1 stops"));
  EXPECT_EQ(ending_.drop_missing_at(), kStart + kStopTimeout);
}

TEST_F(JobEndingTest, WorkersAreDroppedOnceAndNamed) {
  ending_.RequestStop("psctl stop", kStart);
  ending_.OnDropped({{"b", Round(7)}});
  EXPECT_FALSE(IsHeldUp(kStart + 2 * kStopTimeout));
  ending_.OnDropped({{"c", Round(8)}});
  EXPECT_THAT(ending_.not_waited_for(),
              ElementsAre(MissedReport{"b", Round(7)}, MissedReport{"c", Round(8)}));
}

TEST_F(JobEndingTest, WorkersLeaveWithinAMinuteOfTheFirstEndOrWhenTheirReportIsDue) {
  ending_.OnOver(kStart);
  ending_.OnOver(kStart + absl::Hours(1));
  EXPECT_EQ(ending_.over_since(), kStart);
  EXPECT_EQ(ending_.LeavesBy(std::nullopt), kStart + JobEnding::kFarewellTime);
  EXPECT_EQ(ending_.LeavesBy(kStart + absl::Hours(2)), kStart + absl::Hours(2));
  EXPECT_EQ(ending_.LeavesBy(kStart), kStart + JobEnding::kFarewellTime);
}

TEST_F(JobEndingTest, WorkersOfAStoppedJobLeaveWithinItsTimeoutOrALeaseOfItsEnd) {
  ending_.RequestStop("psctl stop", kStart);
  ending_.OnOver(kStart + kStopTimeout - 2 * kLease);
  EXPECT_EQ(ending_.LeavesBy(kStart + absl::Hours(2)), kStart + kStopTimeout);
  JobEnding late({.stop_timeout = kStopTimeout, .lease = kLease});
  late.RequestStop("psctl stop", kStart);
  late.OnOver(kStart + kStopTimeout);
  EXPECT_EQ(late.LeavesBy(std::nullopt), kStart + kStopTimeout + kLease);
}

TEST_F(JobEndingTest, ExitWaitsForServersThatHaveNotSaidThatTheyGo) {
  EXPECT_FALSE(ending_.should_exit());
  ending_.Exit({1, 2}, kStart);
  EXPECT_TRUE(ending_.should_exit());
  ending_.OnExiting(1);
  EXPECT_THAT(ending_.exit_untold(), ElementsAre(2));
  EXPECT_TRUE(ending_.AwaitsServers(kStart + JobEnding::kExitTime - kMoment));
  EXPECT_FALSE(ending_.AwaitsServers(kStart + JobEnding::kExitTime));
  ending_.OnExiting(2);
  EXPECT_FALSE(ending_.AwaitsServers(kStart));
}

TEST_F(JobEndingTest, NewIncarnationOfTheServersKeepsWhatOperatorsHaveAskedFor) {
  ending_.RequestStop("psctl stop", kStart);
  ending_.Pause("lunch", kStart);
  ending_.OnDropped({{"b", Round(7)}});
  ending_.AwaitSave("shard 1 stops", kPatience, kStart);
  ending_.FailOnceSaved(kFull);
  ending_.OnOver(kStart);
  ending_.Restart();
  EXPECT_TRUE(ending_.is_stopping());
  EXPECT_TRUE(ending_.pause().has_value());
  EXPECT_FALSE(ending_.is_work_held());
  EXPECT_TRUE(ending_.failure_once_saved().ok());
  EXPECT_THAT(ending_.not_waited_for(), IsEmpty());
  EXPECT_EQ(ending_.drop_missing_at(), kStart + kStopTimeout);
  EXPECT_EQ(ending_.over_since(), absl::InfiniteFuture());
  EXPECT_TRUE(ending_.AwaitSave("shard 1 stops", kPatience, kStart)) << "it is forgotten";
}

TEST_F(JobEndingTest, ResumedStopGoesOnForTheRestOfItsTimeout) {
  ending_.RequestStop("psctl stop", kStart);
  for (const absl::Duration later : {kStopTimeout / 2, 2 * kStopTimeout}) {
    JobEnding resumed({.stop_timeout = kStopTimeout, .lease = kLease});
    resumed.Resume(ending_.memory(), kStart + later);
    EXPECT_EQ(resumed.memory(), ending_.memory());
    EXPECT_EQ(resumed.drop_missing_at(), kStart + std::max(later, kStopTimeout));
  }
}

TEST_F(JobEndingTest, ResumedJobThatWasNotStoppedGoesOn) {
  ending_.Resume({}, kStart);
  EXPECT_FALSE(ending_.is_stopping());
  EXPECT_EQ(ending_.drop_missing_at(), absl::InfiniteFuture());
}

}  // namespace
}  // namespace lodestar::ending
