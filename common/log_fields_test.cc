#include "common/log_fields.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar {
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

}  // namespace
}  // namespace lodestar
