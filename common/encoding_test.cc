#include "common/encoding.h"

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(EncodingTest, BytesAndElementsAreInverse) {
  for (Encoding encoding : kAllEncodings) {
    int64_t last = -1;
    for (int64_t elements = 0; elements < 1100; ++elements) {
      const int64_t bytes = EncodedBytes(encoding, elements);
      EXPECT_EQ(ElementsIn(encoding, bytes), elements) << EncodingName(encoding);
      for (int64_t between = last + 1; between < bytes; ++between) {
        EXPECT_EQ(ElementsIn(encoding, between), -1) << EncodingName(encoding) << " " << between;
      }
      last = bytes;
    }
    EXPECT_EQ(ElementsIn(encoding, -4), -1);
  }
}

TEST(EncodingTest, PartsThatEndWithBlocksAddUp) {
  for (Encoding encoding : kAllEncodings) {
    const int64_t first = 3 * kInt8Block;
    EXPECT_EQ(EncodedBytes(encoding, first) + EncodedBytes(encoding, 77),
              EncodedBytes(encoding, first + 77));
  }
}

TEST(EncodingTest, ChunksAreWholeBlocksThatFit) {
  for (Encoding encoding : kAllEncodings) {
    for (int64_t bytes : {2048, 4100, 1 << 21}) {
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
  EXPECT_EQ(ChangesKept(Encoding::kBf16, 1 << 20), 1);
  EXPECT_EQ(ChangesKept(Encoding::kInt8, 1), 1);
  EXPECT_EQ(ChangesKept(Encoding::kInt8, 0), 1);
}

TEST(EncodingTest, NamesParse) {
  for (Encoding encoding : kAllEncodings) {
    EXPECT_THAT(ParseEncoding("push_encoding", EncodingName(encoding)), IsOkAndHolds(encoding));
  }
  EXPECT_THAT(ParseEncoding("push_encoding", "int4"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("--push_encoding=int4"), HasSubstr("bf16, fp16, int8"))));
}

}  // namespace
}  // namespace lodestar
