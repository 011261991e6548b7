// SPDX-License-Identifier: Apache-2.0

#include "server/http2/http2_guard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace lodestar::http2 {
namespace {

constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr int kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kPing = 6, kContinuation = 9;
constexpr int kEndHeaders = 4;

std::string Frame(int type, int flags, size_t size) {
  std::string frame;
  for (int i = 2; i >= 0; --i) frame.push_back(static_cast<char>(size >> (8 * i)));
  frame.push_back(static_cast<char>(type));
  frame.push_back(static_cast<char>(flags));
  return absl::StrCat(frame, std::string("\0\0\0\1", 4), std::string(size, 'x'));
}

class Http2GuardTest : public ::testing::Test {
 protected:
  Http2GuardTest() { EXPECT_TRUE(guard_.Allows(kPreface, now_)); }
  bool Send(int type, int flags = 0, size_t size = 8) {
    return guard_.Allows(Frame(type, flags, size), now_);
  }

  absl::Time now_ = absl::UnixEpoch();
  Http2Guard guard_;
};

TEST_F(Http2GuardTest, DataAndCallsPass) {
  for (int i = 0; i < 100'000; ++i) {
    now_ += absl::Milliseconds(1);
    ASSERT_TRUE(Send(kHeaders, kEndHeaders, 200));
    ASSERT_TRUE(Send(kData, 0, 1000));
  }
}

TEST_F(Http2GuardTest, CallsThatAreCutOffAreAFlood) {
  int passed = 0;
  while (Send(kHeaders, kEndHeaders, 50) && Send(kReset)) ++passed;
  EXPECT_EQ(passed, 50);
  now_ += absl::Hours(1);
  EXPECT_FALSE(Send(kData)) << "what is broken stays so";
}

TEST_F(Http2GuardTest, SomeMayBeCutOffNowAndThen) {
  for (int i = 0; i < 10'000; ++i) {
    now_ += absl::Milliseconds(100);
    ASSERT_TRUE(Send(kHeaders, kEndHeaders, 50));
    ASSERT_TRUE(Send(kReset));
  }
}

TEST_F(Http2GuardTest, HeadersOfACallAreBounded) {
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(Send(kHeaders, 0, 6 << 10));
    ASSERT_TRUE(Send(kContinuation, kEndHeaders, 6 << 10));
  }
  ASSERT_TRUE(Send(kHeaders, 0, 6 << 10));
  EXPECT_TRUE(Send(kContinuation, 0, 6 << 10));
  EXPECT_FALSE(Send(kContinuation, 0, 1));
}

TEST_F(Http2GuardTest, FloodsOfOtherFramesEnd) {
  for (const int type : {kSettings, kPing, kHeaders}) {
    Http2Guard guard;
    ASSERT_TRUE(guard.Allows(kPreface, now_));
    int passed = 0;
    while (passed < 100'000 && guard.Allows(Frame(type, kEndHeaders, 8), now_)) ++passed;
    EXPECT_GE(passed, 50);
    EXPECT_LE(passed, 10'000) << type;
  }
}

TEST_F(Http2GuardTest, PiecesAreOfAnySize) {
  const std::string sent =
      absl::StrCat(kPreface, Frame(kSettings, 0, 6), Frame(kHeaders, kEndHeaders, 300),
                   Frame(kData, 0, 70'000), Frame(kReset, 0, 4));
  for (size_t piece = 1; piece < 40; ++piece) {
    Http2Guard guard({.resets = {.burst = 1, .per_second = 0}});
    for (absl::string_view left = sent; !left.empty();) {
      ASSERT_TRUE(guard.Allows(left.substr(0, piece), now_));
      left.remove_prefix(std::min(piece, left.size()));
    }
    EXPECT_FALSE(guard.Allows(Frame(kReset, 0, 4), now_)) << "every frame was seen";
  }
}

TEST_F(Http2GuardTest, WhatIsNoHttp2IsRefused) {
  Http2Guard guard;
  EXPECT_TRUE(guard.Allows("PRI * HT", now_));
  EXPECT_FALSE(guard.Allows("GET", now_));
}

}  // namespace
}  // namespace lodestar::http2
