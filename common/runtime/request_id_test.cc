// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/request_id.h"

#include "gtest/gtest.h"

namespace lodestar {
namespace {

TEST(RequestIdTest, EachCallOfAProcessHasAnotherId) {
  RequestIds ids(0x3fa9c1d2);
  EXPECT_EQ(ids.Next(), "3fa9c1d2-1");
  EXPECT_EQ(ids.Next(), "3fa9c1d2-2");
  EXPECT_EQ(RequestIds(7).Next(), "00000007-1");
}

TEST(RequestIdTest, WhatOthersSendIsOneShortWord) {
  EXPECT_EQ(PeerWord("3fa9c1d2-1"), "3fa9c1d2-1");
  EXPECT_EQ(PeerWord("x worker=7\n\x1b[2J\xff"), "x?worker?7???2J?");
  EXPECT_EQ(PeerWord(std::string(1000, 'a')), std::string(kMaxRequestIdBytes, 'a'));
  EXPECT_EQ(PeerWord(""), "");
}

}  // namespace
}  // namespace lodestar
