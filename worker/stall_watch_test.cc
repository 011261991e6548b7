// SPDX-License-Identifier: Apache-2.0

#include "worker/stall_watch.h"

#include <gtest/gtest.h>

namespace lodestar::worker {
namespace {

using Work = StallWatch::Work;

// Fixture with a StallWatch that looks each second. Its shortest limit is ten minutes.
class StallWatchTest : public testing::Test {
 protected:
  static constexpr absl::Duration kShortest = absl::Minutes(10);

  // Looks each second for `duration`, at work that makes no progress. Returns true if the work
  // counts as stalled at the end.
  bool StandsStillFor(absl::Duration duration, const std::optional<Work>& work) {
    absl::Duration still;
    for (absl::Duration passed; passed < duration; passed += absl::Seconds(1)) {
      now_ += absl::Seconds(1);
      still = watch_.Look(now_, work);
    }
    return still > absl::ZeroDuration();
  }
  // Returns work of the same name that has made progress since the last call.
  Work Next(int64_t size = 1) { return {"computes", ++progress_, size}; }

  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
  uint64_t progress_ = 0;
  StallWatch watch_{kShortest};
};

TEST_F(StallWatchTest, WaitingHasNoLimit) {
  EXPECT_FALSE(StandsStillFor(absl::Hours(30), std::nullopt));
  EXPECT_FALSE(StandsStillFor(kShortest, Next())) << "waiting was no part of it";
  EXPECT_FALSE(StandsStillFor(absl::Hours(30), std::nullopt));
}

TEST_F(StallWatchTest, TheFirstStepHasAnHourAndTheOthersByItsLength) {
  const Work first = Next();
  EXPECT_FALSE(StandsStillFor(absl::Minutes(60), first));
  EXPECT_TRUE(StandsStillFor(absl::Seconds(2), first));
  EXPECT_FALSE(StandsStillFor(absl::Minutes(600), Next())) << "ten times as long";
  EXPECT_FALSE(StandsStillFor(absl::Minutes(1), Next()));
}

TEST_F(StallWatchTest, WhatIsNeverLongHasTheShortestTimeAlsoAtFirst) {
  const Work opening = {.what = "opens its device", .first_factor = 1};
  EXPECT_FALSE(StandsStillFor(absl::Minutes(10), opening));
  EXPECT_TRUE(StandsStillFor(absl::Seconds(2), opening));
}

TEST_F(StallWatchTest, ShortStepsHaveTenMinutes) {
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(StandsStillFor(absl::Seconds(2), Next()));
  const Work stuck = Next();
  EXPECT_FALSE(StandsStillFor(absl::Minutes(10), stuck));
  EXPECT_TRUE(StandsStillFor(absl::Seconds(2), stuck));
  EXPECT_FALSE(StandsStillFor(absl::Seconds(1), Next())) << "it went on after all";
}

TEST_F(StallWatchTest, AStepWithMoreSamplesMayTakeAsMuchLonger) {
  EXPECT_FALSE(StandsStillFor(absl::Minutes(10), Next(/*size=*/8)));
  // The other workers have left, so this worker computes all 64 samples of the round. Its limit is
  // 10 * 64 * (10 min / 8) = 800 min.
  EXPECT_FALSE(StandsStillFor(absl::Minutes(799), Next(/*size=*/64)));
  const Work small = Next(/*size=*/1);
  EXPECT_FALSE(StandsStillFor(absl::Minutes(120), small));
  EXPECT_TRUE(StandsStillFor(absl::Minutes(6), small));
}

TEST_F(StallWatchTest, OtherWorkHasAPastOfItsOwn) {
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(StandsStillFor(absl::Seconds(2), Work{"evaluates", ++progress_, 1}));
  }
  EXPECT_FALSE(StandsStillFor(absl::Minutes(60), Next())) << "the first step of training";
}

TEST_F(StallWatchTest, WhoDidNotRunStoodStillForNobody) {
  EXPECT_FALSE(StandsStillFor(absl::Seconds(2), Next()));
  const Work step = Next();
  EXPECT_FALSE(StandsStillFor(absl::Seconds(1), step));
  // For eight hours there is no look, as if a laptop was closed.
  now_ += absl::Hours(8);
  EXPECT_FALSE(StandsStillFor(absl::Minutes(9), step));
  // The clock goes back by an hour.
  now_ -= absl::Hours(1);
  EXPECT_FALSE(StandsStillFor(absl::Seconds(30), step));
  EXPECT_TRUE(StandsStillFor(absl::Minutes(1), step));
}

}  // namespace
}  // namespace lodestar::worker
