// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/terminal_screen.h"

#include "gtest/gtest.h"

namespace lodestar::psctl {
namespace {

TEST(TerminalScreenTest, EachLineClearsItsRestAndTheLastAllBelow) {
  EXPECT_EQ(ScreenBytes("one\ntwo\n", 24), "\033[Hone\033[K\ntwo\033[K\033[J");
}

TEST(TerminalScreenTest, WhatDoesNotFitIsLeftOut) {
  EXPECT_EQ(ScreenBytes("one\ntwo\nthree", 2), "\033[Hone\033[K\ntwo\033[K\033[J");
}

}  // namespace
}  // namespace lodestar::psctl
