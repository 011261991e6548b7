// SPDX-License-Identifier: Apache-2.0

#include "server/firewall/http2_refusal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"

namespace lodestar::firewall {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const std::string kEmptySettings("\0\0\0\4\0\0\0\0\0", 9);
const std::string kSettingsAck("\0\0\0\4\1\0\0\0\0", 9);

// Returns a HEADERS frame for a new call. Its header block is empty.
std::string Call(char stream) { return std::string("\0\0\0\1\5\0\0\0", 8) + stream; }

Http2Refusal NewRefusal(const std::string& text = "too many") {
  return Http2Refusal(absl::UnavailableError(text), Http2Refusal::GoAwayCode::kEnhanceYourCalm);
}

TEST(Http2RefusalTest, EveryCallIsToldWhy) {
  Http2Refusal refusal = NewRefusal();
  EXPECT_EQ(refusal.OnBytes(absl::StrCat(kPreface, kEmptySettings)), kEmptySettings + kSettingsAck);
  EXPECT_EQ(refusal.num_calls(), 0);
  for (const char stream : {1, 3}) {
    const std::string answer = refusal.OnBytes(Call(stream));
    EXPECT_EQ(answer[8], stream);
    EXPECT_THAT(answer, HasSubstr("grpc-status\x02"
                                  "14"));
    EXPECT_THAT(answer, HasSubstr("grpc-message\x08too many"));
  }
  EXPECT_EQ(refusal.num_calls(), 2);
  EXPECT_EQ(refusal.GoAway(),
            absl::StrCat(std::string("\0\0\x10\7\0\0\0\0\0\0\0\0\3\0\0\0\xb", 17), "too many"));
  EXPECT_FALSE(refusal.is_broken());
}

TEST(Http2RefusalTest, PiecesMayBeOfAnySize) {
  const std::string all = absl::StrCat(kPreface, kEmptySettings, Call(1));
  Http2Refusal whole = NewRefusal();
  const std::string answer = whole.OnBytes(all);
  Http2Refusal cut = NewRefusal();
  std::string pieces;
  for (const char byte : all) pieces += cut.OnBytes({&byte, 1});
  EXPECT_EQ(pieces, answer);
}

// HPACK writes a length of 127 or more in several bytes.
TEST(Http2RefusalTest, TextsMayBeLong) {
  const std::string text(300, 'x');
  Http2Refusal refusal = NewRefusal(text);
  EXPECT_THAT(refusal.OnBytes(absl::StrCat(kPreface, Call(1))),
              HasSubstr(absl::StrCat("grpc-message\x7f\xad\x01", text)));
}

TEST(Http2RefusalTest, WhatIsNoHttp2IsNotGoneOnWith) {
  Http2Refusal refusal = NewRefusal();
  refusal.OnBytes(absl::StrCat(kPreface, "\xff\xff\xff and so on"));
  EXPECT_TRUE(refusal.is_broken());
  EXPECT_EQ(refusal.OnBytes(Call(1)), "");
}

TEST(Http2RefusalTest, AnyBytesAreTaken) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    Http2Refusal refusal = NewRefusal();
    std::string bytes(kPreface);
    for (int length = static_cast<int>(random() % 200); length > 0; --length) {
      bytes.push_back(static_cast<char>(random() % 4 == 0 ? random() : random() % 8));
    }
    const std::string answer = refusal.OnBytes(bytes);
    // The shortest call is a frame of nine bytes. Its answer is less than ten times as long.
    EXPECT_LE(answer.size(), 10 * bytes.size());
  }
}

TEST(Http2RefusalTest, WhoSendsAndSendsIsGivenUp) {
  Http2Refusal refusal = NewRefusal();
  refusal.OnBytes(kPreface);
  for (int i = 0; i < 40'000 && !refusal.is_broken(); ++i) refusal.OnBytes(kSettingsAck);
  EXPECT_TRUE(refusal.is_broken());
}

}  // namespace
}  // namespace lodestar::firewall
