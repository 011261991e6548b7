#include "worker/data/token_stream.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace lodestar {
namespace {

std::vector<int32_t> CopyOf(const TokenStream& stream, int64_t begin, int64_t count) {
  std::vector<int32_t> out(count, -1);
  stream.Copy(begin, count, out.data());
  return out;
}

TEST(TokenStreamTest, EveryRangeOverAllPartsIsRight) {
  const std::vector<uint8_t> bytes = {0, 1, 2, 3, 250, 251, 6, 7, 8, 255};
  TokenStream stream(TokenWidth::kOneByte);
  stream.Append(bytes.data(), 1);
  stream.Append(bytes.data() + 1, 0);
  stream.Append(bytes.data() + 1, 5);
  stream.Append(bytes.data() + 6, 4);
  ASSERT_EQ(stream.num_tokens(), 10);
  for (int64_t begin = 0; begin <= 10; ++begin) {
    for (int64_t count = 0; begin + count <= 10; ++count) {
      EXPECT_EQ(CopyOf(stream, begin, count),
                std::vector<int32_t>(bytes.begin() + begin, bytes.begin() + begin + count));
    }
  }
}

TEST(TokenStreamTest, ReadsTwoByteTokensAtOddAddresses) {
  const std::vector<uint8_t> bytes = {99, 1, 0, 0x34, 0x12, 0xff, 0xff};
  TokenStream stream(TokenWidth::kTwoBytes);
  stream.Append(bytes.data() + 1, 3);
  EXPECT_EQ(CopyOf(stream, 0, 3), (std::vector<int32_t>{1, 0x1234, 65535}));
  EXPECT_EQ(CopyOf(stream, 2, 1), (std::vector<int32_t>{65535}));
}

TEST(TokenStreamTest, StartsEmpty) { EXPECT_EQ(TokenStream(TokenWidth::kOneByte).num_tokens(), 0); }

}  // namespace
}  // namespace lodestar
