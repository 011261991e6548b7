// SPDX-License-Identifier: Apache-2.0

#include "server/firewall/congestion_control.h"

#include <sys/socket.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace lodestar::firewall {
namespace {

TEST(CongestionControlTest, WhatAShortPathLosesInGreatPartIsMisjudged) {
  const SentBytes bytes = {
      .sent = 10'000'000, .again = 1'400'000, .round_trip = absl::Microseconds(400)};
  EXPECT_TRUE(IsMisjudged(bytes));
  SentBytes longer = bytes;
  longer.round_trip = absl::Milliseconds(20);
  EXPECT_FALSE(IsMisjudged(longer)) << "its losses may be its own";
  SentBytes few = bytes;
  few.again = 400'000;
  EXPECT_FALSE(IsMisjudged(few));
  SentBytes begun = bytes;
  begun.sent = 490'000;
  begun.again = 300'000;
  EXPECT_FALSE(IsMisjudged(begun));
  EXPECT_FALSE(IsMisjudged({}));
}

TEST(CongestionControlTest, OtherFilesAreLeftAlone) {
  EXPECT_EQ(MendCongestionControl(-1), "");
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  EXPECT_EQ(MendCongestionControl(pair[0]), "");
  const int unconnected = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(MendCongestionControl(unconnected), "");
  for (const int descriptor : {pair[0], pair[1], unconnected}) close(descriptor);
}

}  // namespace
}  // namespace lodestar::firewall
