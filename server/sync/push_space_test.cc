// SPDX-License-Identifier: Apache-2.0

#include "server/sync/push_space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lodestar::sync {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Pusher kA{WorkerId(1), Incarnation(7)};
constexpr Pusher kB{WorkerId(2), Incarnation(8)};

UnfinishedPush PushOf(const Pusher& pusher, uint32_t bucket, int64_t received, int64_t total) {
  return {pusher, Round(3), bucket, received, total};
}

TEST(PushSpaceTest, APusherIsSilentForAsLongAsAllOfItsPushesAre) {
  UnfinishedPush least = PushOf(kA, 0, 1, 100);
  least.silence = absl::Seconds(9);
  UnfinishedPush other = PushOf(kA, 1, 50, 100);
  other.silence = absl::Seconds(4);
  UnfinishedPush wanted = least;
  wanted.silence = absl::Seconds(4);
  EXPECT_THAT(PushSpaceOf({least, other}, {}).unfinished, ElementsAre(wanted));
  EXPECT_THAT(PushSpaceOf({other, least}, {}).unfinished, ElementsAre(wanted));
}

TEST(PushSpaceTest, NamesOfEachPusherWhatLeastHasComeOf) {
  const UnfinishedPush half = PushOf(kA, 0, 50, 100);
  const UnfinishedPush tenth = PushOf(kA, 1, 100, 1000);
  const UnfinishedPush tenth_too = PushOf(kA, 2, 10, 100);
  const UnfinishedPush of_b = PushOf(kB, 1, 999, 1000);
  EXPECT_THAT(PushSpaceOf({of_b, half, tenth_too, tenth}, {}).unfinished, ElementsAre(tenth, of_b));
}

TEST(PushSpaceTest, WhoWaitsBehindOthersIsHeld) {
  EXPECT_THAT(PushSpaceOf({PushOf(kA, 0, 1, 100)}, {kB, kB, kA}).held, ElementsAre(kB));
  EXPECT_THAT(PushSpaceOf({PushOf(kA, 0, 1, 100), PushOf(kB, 0, 1, 100)}, {kB, kA}).held,
              ElementsAre(kA, kB));
}

TEST(PushSpaceTest, WhoWaitsForNobodyElseIsNotHeld) {
  EXPECT_THAT(PushSpaceOf({PushOf(kA, 0, 1, 100)}, {kA}).held, IsEmpty());
  EXPECT_THAT(PushSpaceOf({}, {kA}).held, IsEmpty()) << "what is whole is about to be counted";
}

}  // namespace
}  // namespace lodestar::sync
