// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/byte_letters.h"

#include <gtest/gtest.h>

#include <set>

namespace lodestar {
namespace {

TEST(ByteLettersTest, EveryByteHasALetterOfItsOwn) {
  std::set<std::string> letters;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string letter = LetterOfByte(static_cast<uint8_t>(byte));
    EXPECT_TRUE(letters.insert(letter).second) << byte;
    EXPECT_EQ(BytesOfLetters(letter), std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(LetterOfByte('a'), "a");
  EXPECT_EQ(LetterOfByte(' '), "\u0120");
  EXPECT_EQ(LetterOfByte('\n'), "\u010a");
  EXPECT_EQ(LetterOfByte(0xad), "\u0143");
  EXPECT_EQ(LetterOfByte(0xff), "\u00ff");
}

TEST(ByteLettersTest, WhatIsNoLetterIsToldApart) {
  EXPECT_EQ(BytesOfLetters("\u0120the"), " the");
  EXPECT_EQ(BytesOfLetters(""), "");
  for (const char* bad : {" ", "a b", "\u0144", "\u20ac", "\xc4", "\xff", "\xc4x"}) {
    EXPECT_EQ(BytesOfLetters(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace lodestar
