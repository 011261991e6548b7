// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/peer_text.h"

#include "gtest/gtest.h"

namespace lodestar {
namespace {

constexpr size_t kMany = 1000;

TEST(PeerTextTest, LeavesWhatPeopleWriteAsItIs) {
  for (const char* text :
       {"", "worker-1", "disk \"/a\\b\" is full; 5 > 4", "\u00fcber \u4e2d \U0001f600"}) {
    EXPECT_EQ(PeerText(text, kMany), text);
  }
}

TEST(PeerTextTest, NothingReachesATerminalThatItObeys) {
  EXPECT_EQ(PeerText("a\x1b[2Jb\r\n\tc\x7f", kMany), "a\\x1b[2Jb\\x0d\\n\\tc\\x7f");
  EXPECT_EQ(PeerText(absl::string_view("a\0b", 3), kMany), "a\\x00b");
  EXPECT_EQ(PeerText("\u009b2J", kMany), "\\u009b2J") << "CSI as one character";
  EXPECT_EQ(PeerText("a\u202egpj", kMany), "a\\u202egpj") << "turns the direction of writing";
  EXPECT_EQ(PeerText("a\u2028b", kMany), "a\\u2028b");
}

TEST(PeerTextTest, WhatIsNotUtf8IsWrittenByteByByte) {
  EXPECT_EQ(PeerText("\x9b", kMany), "\\x9b") << "CSI of an 8-bit terminal";
  EXPECT_EQ(PeerText("a\xff", kMany), "a\\xff");
  EXPECT_EQ(PeerText("\xc0\x9b", kMany), "\\xc0\\x9b") << "overlong";
  EXPECT_EQ(PeerText("\xed\xa0\x80", kMany), "\\xed\\xa0\\x80") << "surrogate";
  EXPECT_EQ(PeerText("\xf4\x90\x80\x80", kMany), "\\xf4\\x90\\x80\\x80") << "beyond Unicode";
  EXPECT_EQ(PeerText("\xe4\xb8", kMany), "\\xe4\\xb8") << "cut off";
}

TEST(PeerTextTest, CutsWholeCharactersAndSaysSo) {
  EXPECT_EQ(PeerText("abcdef", 6), "abcdef");
  EXPECT_EQ(PeerText("abcdef", 3), "abc...");
  EXPECT_EQ(PeerText("ab\u4e2d", 4), "ab...");
  EXPECT_EQ(PeerText(std::string(1 << 20, 'x'), 8), "xxxxxxxx...");
}

TEST(PeerTextTest, WhatHasPassedPassesUnchanged) {
  std::string every;
  for (int byte = 0; byte < 256; ++byte) every.push_back(static_cast<char>(byte));
  const std::string once = PeerText(every, kMany);
  EXPECT_EQ(PeerText(once, 4 * kMany), once);
}

TEST(PeerLinesTest, EscapesEachLineAndKeepsTheirEnds) {
  EXPECT_EQ(PeerLines("one\x1b[2J\ntwo"), "one\\x1b[2J\ntwo");
  EXPECT_EQ(PeerLines("abcdef\nab", 3), "abc...\nab");
}

TEST(IsUtf8Test, TellsWhatMessagesMayCarry) {
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_TRUE(IsUtf8("/tmp/r\u00e9sum\u00e9\n"));
  EXPECT_FALSE(IsUtf8("/tmp/d\xff"));
  EXPECT_FALSE(IsUtf8("cut \xc3"));
}

}  // namespace
}  // namespace lodestar
