#include "common/encoding.h"

#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(EncodingTest, BytesHoldAllThatIsLeftOrWholeBlocks) {
  for (Encoding encoding : kAllEncodings) {
    const int64_t block = BlockElements(encoding);
    const int64_t block_bytes = EncodedBytes(encoding, block);
    for (int64_t room : {0, 1, 2, 127, 128, 129, 255, 256, 257, 511, 512, 513, 777}) {
      const int64_t all = EncodedBytes(encoding, room);
      for (int64_t bytes = -4; bytes <= all + 2 * block_bytes; ++bytes) {
        int64_t wanted = bytes >= 0 && bytes % block_bytes == 0 ? bytes / block_bytes * block : -1;
        if (wanted > room) wanted = -1;
        if (bytes == all) wanted = room;
        EXPECT_EQ(ElementsIn(encoding, bytes, room), wanted)
            << EncodingName(encoding) << " " << bytes << " of " << room;
      }
    }
  }
}

TEST(EncodingTest, HasTheBytesOfItsBlocks) {
  EXPECT_EQ(EncodedBytes(Encoding::kInt8, 1000), 1000 + 4 * 4);
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
  EXPECT_EQ(ChangesKept(Encoding::kInt4, 1 << 20), 7);
  EXPECT_EQ(ChangesKept(Encoding::kBf16, 1 << 20), 1);
  EXPECT_EQ(ChangesKept(Encoding::kInt8, 1), 1);
  EXPECT_EQ(ChangesKept(Encoding::kInt8, 0), 1);
}

TEST(EncodingTest, NamesParse) {
  for (Encoding encoding : kAllEncodings) {
    EXPECT_THAT(ParseEncoding("push_encoding", EncodingName(encoding)), IsOkAndHolds(encoding));
  }
  EXPECT_THAT(ParseEncoding("push_encoding", "int2"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("--push_encoding=int2"), HasSubstr("fp16, int8, int4"))));
}

}  // namespace
}  // namespace lodestar
