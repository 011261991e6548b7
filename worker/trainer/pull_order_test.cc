// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/pull_order.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::trainer {
namespace {

using ::testing::ElementsAre;

// Returns the order for eight buckets. Each has ten bytes to send and ten to receive.
std::vector<uint32_t> OrderWhile(const std::vector<LeavingBucket>& leaving,
                                 double up_per_down = 1.0) {
  return PullOrder({0, 1, 2, 3, 4, 5, 6, 7}, leaving, std::vector<int64_t>(8, 10), up_per_down);
}

TEST(PullOrderTest, WhatForwardNeedsFirstGoesFirstOnceAllHasLeft) {
  EXPECT_THAT(OrderWhile({}), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(PullOrder({2, 0, 3, 1}, {}, std::vector<int64_t>(4, 10), 1.0),
              ElementsAre(2, 0, 3, 1));
}

TEST(PullOrderTest, WhatHasLeftFillsTheTimeUntilTheFirstBlockHas) {
  // Five bytes of bucket 1 are not sent yet. Bucket 0, which forward needs first, is sent after it.
  EXPECT_THAT(OrderWhile({{1, 5}, {0, 15}}), ElementsAre(2, 1, 0, 3, 4, 5, 6, 7));
}

TEST(PullOrderTest, WhereNothingHasLeftWeightsComeAsContributionsGo) {
  EXPECT_THAT(OrderWhile({{7, 10}, {6, 20}, {5, 30}, {4, 40}, {3, 50}, {2, 60}, {0, 70}, {1, 80}}),
              ElementsAre(7, 6, 5, 4, 3, 2, 0, 1));
}

TEST(PullOrderTest, OfWhatIsThereTheFirstNeededGoesFirst) {
  // Five bytes are sent in the time that one byte is received.
  EXPECT_THAT(OrderWhile({{7, 10}, {6, 20}, {5, 30}, {4, 40}, {3, 50}, {2, 60}, {0, 70}, {1, 80}},
                         /*up_per_down=*/5.0),
              ElementsAre(7, 2, 0, 1, 3, 4, 5, 6));
}

TEST(PullOrderTest, AFastWayDownHasTimeForMore) {
  EXPECT_THAT(OrderWhile({{1, 10}, {0, 20}}, /*up_per_down=*/0.25),
              ElementsAre(2, 3, 4, 5, 1, 6, 7, 0));
}

TEST(PullOrderTest, PartsOfTheBucketsAreOrderedByThemselves) {
  EXPECT_THAT(PullOrder({5, 3}, {{5, 40}}, std::vector<int64_t>(8, 10), 1.0), ElementsAre(3, 5));
}

}  // namespace
}  // namespace lodestar::trainer
