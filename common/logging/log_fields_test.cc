// SPDX-License-Identifier: Apache-2.0

#include "common/logging/log_fields.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::logging {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(LogFieldsTest, KeysHaveTheirFirstValue) {
  EXPECT_THAT(LogFields("call failed call=Join request=3f-1 worker=3 reason=round=7 worker=4"),
              ElementsAre(Pair("call", "Join"), Pair("request", "3f-1"), Pair("worker", "3")));
  EXPECT_THAT(LogFields("--round=7 name= surround=1"), IsEmpty());
}

TEST(LogFieldsTest, WhatStandsInWordsIsAFieldToo) {
  EXPECT_THAT(LogFields("round 7 went on with 3 of 4 workers"), ElementsAre(Pair("round", "7")));
  EXPECT_THAT(LogFields("handed in: round 12, 64 samples"), ElementsAre(Pair("round", "12")));
  EXPECT_THAT(LogFields("worker 'a.1' is slow; shard 2: round 3"),
              ElementsAre(Pair("name", "a.1"), Pair("shard", "2"), Pair("round", "3")));
  EXPECT_THAT(LogFields("round 7 of worker 'a'; round=8"),
              ElementsAre(Pair("round", "8"), Pair("name", "a")))
      << "what has a key counts";
  EXPECT_THAT(LogFields("round 7th, shard x, worker 'a, round"), IsEmpty());
}

TEST(LogFieldsTest, AKeyHasValuesOfOneType) {
  EXPECT_THAT(LogFields("version=0.1.0 shard=0/2 round=7: view=x worker=2."),
              ElementsAre(Pair("shard", "0"), Pair("round", "7"), Pair("worker", "2")));
  EXPECT_THAT(LogFields("round=9007199254740992 worker=9007199254740993"),
              ElementsAre(Pair("round", "9007199254740992")))
      << "beyond the whole numbers of a double";
  EXPECT_THAT(LogFields("round=-1 round=99999999999999999999 shard="), IsEmpty());
  for (const absl::string_view key : kLogKeys) {
    const bool is_number = key == "round" || key == "shard" || key == "view" || key == "worker";
    EXPECT_EQ(IsNumberLogKey(key), is_number) << key;
  }
}

}  // namespace
}  // namespace lodestar::logging
