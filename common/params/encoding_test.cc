// SPDX-License-Identifier: Apache-2.0

#include "common/params/encoding.h"

#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::params {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(EncodingTest, BytesHoldAllThatIsLeftOrWholeBlocks) {
  for (Encoding encoding : kAllEncodings) {
    const int64_t block = BlockElements(encoding);
    const int64_t block_bytes = EncodedBytes(encoding, block);
    for (int64_t room : {0,   1,   2,   63,  64,  65,   127,  128,  129,  255, 256,
                         257, 511, 512, 513, 777, 4095, 4096, 4097, 8192, 9000}) {
      const int64_t all = EncodedBytes(encoding, room);
      for (int64_t bytes = -4; bytes <= all + 2 * block_bytes; ++bytes) {
        int64_t wanted = bytes >= 0 && bytes % block_bytes == 0 ? bytes / block_bytes * block : -1;
        if (wanted > room) wanted = -1;
        if (bytes == all) wanted = room;
        EXPECT_EQ(ElementsIn(encoding, bytes, room), wanted)
            << EncodingText(encoding) << " " << bytes << " of " << room;
      }
    }
  }
}

TEST(EncodingTest, HasTheBytesOfItsBlocks) {
  EXPECT_EQ(EncodedBytes(Encoding::kInt8, 1000), 1000 + 4 * 4);
  for (const auto& [elements, bytes] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 0},
                                                {1, 4 + 2 + 1},
                                                {2, 4 + 3 + 1},
                                                {5, 4 + 8 + 2},
                                                {64, 116},
                                                {4096, 116},
                                                {4097, 123},
                                                {3 * 4096 + 1000, 4 * 116}}) {
    EXPECT_EQ(EncodedBytes(Encoding::TopK(64, 2), elements), bytes) << elements;
  }
  EXPECT_EQ(EncodedBytes(Encoding::TopK(64, 4), 4096), 4 + 96 + 32);
  EXPECT_EQ(EncodedBytes(Encoding::TopK(5, 4), 4096), 4 + 8 + 3);
  for (const auto& [elements, bytes] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 0}, {1, 3}, {2, 3}, {3, 4}, {127, 66}, {128, 66}, {129, 69}, {1000, 516}}) {
    EXPECT_EQ(EncodedBytes(Encoding::kInt4, elements), bytes) << elements;
  }
}

TEST(EncodingTest, PartsThatEndWithBlocksAddUp) {
  for (Encoding encoding : kAllEncodings) {
    const int64_t first = 3 * kWholeBlocks;
    EXPECT_EQ(EncodedBytes(encoding, first) + EncodedBytes(encoding, 77),
              EncodedBytes(encoding, first + 77));
  }
}

TEST(EncodingTest, ChunksAreWholeBlocksThatFit) {
  for (Encoding encoding : kAllEncodings) {
    for (int64_t bytes : {2048, 4100, 1 << 21}) {  // larger than a block of any encoding
      const int64_t elements = ChunkElements(encoding, bytes);
      EXPECT_EQ(elements % BlockElements(encoding), 0);
      EXPECT_LE(EncodedBytes(encoding, elements), bytes);
      EXPECT_GT(EncodedBytes(encoding, elements + BlockElements(encoding)), bytes);
    }
    EXPECT_EQ(ChunkElements(encoding, 1), BlockElements(encoding));
  }
}

TEST(EncodingTest, KeptChangesAreSmallerThanTheVector) {
  EXPECT_EQ(ChangesKept(Encoding::kInt8, 1 << 20), 3);
  EXPECT_EQ(ChangesKept(Encoding::kInt4, 1 << 20), 7);
  EXPECT_EQ(ChangesKept(Encoding::kBf16, 1 << 20), 1);
  EXPECT_EQ(ChangesKept(Encoding::kInt8, 1), 1);
  EXPECT_EQ(ChangesKept(Encoding::kInt8, 0), 1);
}

TEST(EncodingTest, TextsHaveTheParametersAndParse) {
  EXPECT_EQ(EncodingText(Encoding::kInt8), "int8");
  EXPECT_EQ(EncodingText(Encoding::TopK(32, 4)), "topk(32,4)");
  for (const Encoding encoding :
       {Encoding::kFp32, Encoding::kInt4, Encoding::TopK(1, 2), Encoding::TopK(1024, 4)}) {
    EXPECT_THAT(ParseEncodingText("encoding", EncodingText(encoding)), IsOkAndHolds(encoding));
  }
  for (const char* const text : {"", "topk", "topk()", "topk(64)", "topk(64,2", "topk(0,2)",
                                 "topk(1025,2)", "topk(64,3)", "topk(64,2,2)", "topk2"}) {
    EXPECT_THAT(ParseEncodingText("encoding", text).status(),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << text;
  }
}

TEST(EncodingTest, TopKHasBounds) {
  EXPECT_THAT(MakeTopK(64, 2), IsOkAndHolds(Encoding::TopK(64, 2)));
  EXPECT_THAT(MakeTopK(0, 2), StatusIs(absl::StatusCode::kInvalidArgument,
                                       AllOf(HasSubstr("--topk=0"), HasSubstr("1024"))));
  EXPECT_THAT(MakeTopK(64, 3), StatusIs(absl::StatusCode::kInvalidArgument,
                                        AllOf(HasSubstr("--topk_bits=3"), HasSubstr("2, 4"))));
}

TEST(EncodingTest, ParametersTellEncodingsApart) {
  EXPECT_EQ(Encoding::TopK(64, 2), Encoding::TopK(64, 2));
  EXPECT_NE(Encoding::TopK(64, 2), Encoding::TopK(63, 2));
  EXPECT_NE(Encoding::TopK(64, 2), Encoding::TopK(64, 4));
  EXPECT_NE(Encoding::TopK(64, 2), Encoding::kInt4);
  // EncodingOf() in server/rpc distinguishes top-k encodings of the same kind only by the size of a
  // block.
  for (int bits : {2, 4}) {
    for (int topk = 1; topk < kMaxTopK; ++topk) {
      ASSERT_LT(EncodedBytes(Encoding::TopK(topk, bits), kTopKBlock),
                EncodedBytes(Encoding::TopK(topk + 1, bits), kTopKBlock));
    }
  }
}

TEST(EncodingTest, NamesParse) {
  for (Encoding encoding : kAllEncodings) {
    const Encoding wanted = encoding.is_topk() ? Encoding::TopK(64, 2) : encoding;
    EXPECT_THAT(ParseEncoding("push_encoding", EncodingName(encoding)), IsOkAndHolds(wanted));
  }
  EXPECT_THAT(ParseEncoding("push_encoding", "int2"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("--push_encoding=int2"),
                             HasSubstr("allowed: fp32, bf16, fp16, int8, int4, topk"))));
}

}  // namespace
}  // namespace lodestar::params
