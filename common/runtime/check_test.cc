// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/check.h"

#include <gtest/gtest.h>

namespace lodestar {
namespace {

TEST(CheckDeathTest, AbortsWithPlaceConditionAndMessage) {
  const int begin = 3;
  EXPECT_DEATH(LODESTAR_CHECK(begin <= 2) << "begin=" << begin,
               "check_test.cc:[0-9]+: check failed: begin <= 2 begin=3");
}

TEST(CheckTest, EvaluatesOnceAndSkipsTheMessageWhenItHolds) {
  int evaluations = 0;
  int messages = 0;
  LODESTAR_CHECK(++evaluations == 1) << ++messages;
  EXPECT_EQ(evaluations, 1);
  EXPECT_EQ(messages, 0);
}

TEST(CheckTest, DoesNotCaptureAnElse) {
  bool took_else = false;
  if (took_else)
    LODESTAR_CHECK(true);
  else
    took_else = true;
  EXPECT_TRUE(took_else);
}

}  // namespace
}  // namespace lodestar
