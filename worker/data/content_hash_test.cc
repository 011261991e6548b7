// SPDX-License-Identifier: Apache-2.0

#include "worker/data/content_hash.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace lodestar::data {
namespace {

std::string HashOf(const std::vector<uint8_t>& bytes) {
  ContentHash hash;
  hash.AddBytes(bytes);
  return hash.Hex();
}

TEST(ContentHashTest, IsSixteenHexDigits) {
  const std::string hex = HashOf({1, 2, 3});
  EXPECT_EQ(hex.size(), 16);
  EXPECT_EQ(hex.find_first_not_of("0123456789abcdef"), std::string::npos);
}

TEST(ContentHashTest, EveryBitCounts) {
  std::vector<uint8_t> bytes(100, 0);
  std::set<std::string> seen = {HashOf(bytes)};
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::vector<uint8_t> changed = bytes;
    changed[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    EXPECT_TRUE(seen.insert(HashOf(changed)).second) << "bit " << bit;
  }
}

TEST(ContentHashTest, LengthCountsEvenWhenAllBytesAreZero) {
  std::set<std::string> seen;
  for (size_t length = 0; length < 70; ++length) {
    EXPECT_TRUE(seen.insert(HashOf(std::vector<uint8_t>(length, 0))).second) << length;
  }
}

TEST(ContentHashTest, OrderCounts) {
  ContentHash ab;
  ab.AddText("a");
  ab.AddText("b");
  ContentHash ba;
  ba.AddText("b");
  ba.AddText("a");
  EXPECT_NE(ab.Hex(), ba.Hex());
  ContentHash one_two;
  one_two.AddNumber(1);
  one_two.AddNumber(2);
  ContentHash two_one;
  two_one.AddNumber(2);
  two_one.AddNumber(1);
  EXPECT_NE(one_two.Hex(), two_one.Hex());
}

TEST(ContentHashTest, PiecesAreTheWhole) {
  std::vector<uint8_t> bytes;
  for (int i = 0; i < 1000; ++i) bytes.push_back(static_cast<uint8_t>(i * 7));
  const absl::Span<const uint8_t> whole = absl::MakeConstSpan(bytes);
  ContentHash at_once;
  at_once.AddBytes(whole);
  for (const size_t cut : {0, 32, 512, 992}) {
    ContentHash::Pieces pieces;
    pieces.Add(whole.subspan(0, cut));
    pieces.Add(whole.subspan(cut));
    ContentHash in_pieces;
    in_pieces.AddBytes(pieces);
    EXPECT_EQ(in_pieces.Hex(), at_once.Hex()) << cut;
  }
}

}  // namespace
}  // namespace lodestar::data
