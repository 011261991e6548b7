// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/one_line.h"

#include "gtest/gtest.h"

namespace lodestar {
namespace {

TEST(OneLineTest, JoinsLinesAndBlanks) {
  EXPECT_EQ(OneLine("differ:\n  setting  asked\n  rounds   20\n\n"),
            "differ: setting asked; rounds 20");
}

TEST(OneLineTest, LeavesOneLineAsItIs) {
  EXPECT_EQ(OneLine("two  blanks"), "two  blanks");
  EXPECT_EQ(OneLine(""), "");
}

}  // namespace
}  // namespace lodestar
