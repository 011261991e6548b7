// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/stragglers/straggler_watch.h"

#include "gtest/gtest.h"

namespace lodestar::stragglers {
namespace {

using Members = std::vector<StragglerWatch::Member>;

// Counts `count` rounds. Returns the name that the last of them reports.
std::string After(StragglerWatch& watch, int count, const Members& members) {
  std::string name;
  for (int i = 0; i < count; ++i) name = watch.OnRound(members).name;
  return name;
}

TEST(StragglerWatchTest, NamesWorkerOnceAfterManySlowRounds) {
  StragglerWatch watch;
  const Members members = {{"a", 100}, {"slow", 40}, {"b", 110}};
  EXPECT_EQ(After(watch, StragglerWatch::kRounds - 1, members), "");
  const StragglerWatch::Straggler found = watch.OnRound(members);
  EXPECT_EQ(found.name, "slow");
  EXPECT_EQ(found.speed, 40);
  EXPECT_EQ(found.usual_speed, 100);
  EXPECT_EQ(After(watch, 3 * StragglerWatch::kRounds, members), "");
}

TEST(StragglerWatchTest, IgnoresWorkerThatIsSlowForFewRounds) {
  StragglerWatch watch;
  const Members slow = {{"a", 100}, {"b", 40}};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(After(watch, StragglerWatch::kRounds - 1, slow), "");
    EXPECT_EQ(After(watch, 1, {{"a", 100}, {"b", 90}}), "");
  }
}

TEST(StragglerWatchTest, NamesNoWorkerIfASpeedIsUnknownOrTheWorkerIsAlone) {
  StragglerWatch watch;
  EXPECT_EQ(After(watch, 2 * StragglerWatch::kRounds, {{"a", 100}, {"b", 0}}), "");
  EXPECT_EQ(After(watch, 2 * StragglerWatch::kRounds, {{"a", 100}}), "");
  EXPECT_EQ(After(watch, 2 * StragglerWatch::kRounds, {}), "");
}

}  // namespace
}  // namespace lodestar::stragglers
