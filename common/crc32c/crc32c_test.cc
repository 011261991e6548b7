// SPDX-License-Identifier: Apache-2.0

#include "common/crc32c/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/crc32c/crc32c_folding.h"

namespace lodestar::crc32c {
namespace {

std::vector<uint8_t> Pattern(size_t size) {
  std::vector<uint8_t> bytes(size);
  uint32_t state = 12345;
  for (uint8_t& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<uint8_t>(state >> 24);
  }
  return bytes;
}

TEST(Crc32cTest, MatchesPublishedVectors) {
  EXPECT_EQ(Crc32c("123456789", 9), 0xE3069283);
  // Values are from RFC 3720, section B.4.
  EXPECT_EQ(Crc32c(std::vector<uint8_t>(32, 0)), 0x8A9136AA);
  EXPECT_EQ(Crc32c(std::vector<uint8_t>(32, 0xff)), 0x62A8AB43);
  EXPECT_EQ(Crc32c({}), 0);
}

TEST(Crc32cTest, HardwareAndTablesAgreeOnAllLengthsAndAlignments) {
  const std::vector<uint8_t> bytes = Pattern(3 * 4096 * 3 + 100);
  for (size_t size : {0, 1, 7, 8, 9, 31, 63, 4095, 12287, 12288, 12289, 256, 4096, 4351, 4352,
                      24577, 36864, 36955}) {
    for (size_t offset = 0; offset < 9; ++offset) {
      ASSERT_EQ(Crc32c(bytes.data() + offset, size, 77),
                Crc32cPortable(bytes.data() + offset, size, 77))
          << size << " bytes at " << offset;
    }
  }
}

TEST(Crc32cTest, EveryFoldingOfThisMachineAgreesAndCopies) {
  const std::vector<uint8_t> bytes = Pattern(70000);
  for (int i = 0; FoldingAt(i) != nullptr; ++i) {
    const Folding* const folding = FoldingAt(i);
    for (size_t size : {0, 1, 4095, 4096, 4097, 4223, 4224, 4351, 4352, 12288, 65536, 69990}) {
      for (size_t offset = 0; offset < 9; ++offset) {
        const uint8_t* const source = bytes.data() + offset;
        const uint32_t expected = Crc32cPortable(source, size, 77);
        ASSERT_EQ(Crc32cBy(*folding, nullptr, source, size, 77, /*streams=*/false), expected)
            << folding->name << ", " << size << " bytes at " << offset;
        for (const bool streams : {false, true}) {
          std::vector<uint8_t> copy(size + 2, 0xaa);
          ASSERT_EQ(Crc32cBy(*folding, copy.data() + 1, source, size, 77, streams), expected)
              << folding->name << ", " << size << " bytes at " << offset;
          ASSERT_TRUE(std::equal(source, source + size, copy.data() + 1)) << folding->name;
          ASSERT_TRUE(copy.front() == 0xaa && copy.back() == 0xaa) << folding->name;
        }
      }
    }
  }
}

TEST(Crc32cTest, CopiesWhatItSums) {
  const std::vector<uint8_t> bytes = Pattern(70000);
  for (size_t size : {0, 1, 8, 255, 3072, 4095, 4096, 4097, 4351, 4352, 12288, 65536, 69990}) {
    for (size_t offset = 0; offset < 9; ++offset) {
      const uint8_t* const source = bytes.data() + offset;
      const uint32_t expected = Crc32cPortable(source, size, 77);
      for (const CopyTo copy_to : {CopyTo::kCaches, CopyTo::kMemory}) {
        std::vector<uint8_t> copy(size + 2, 0xaa);
        ASSERT_EQ(Crc32cCopy(copy.data() + 1, source, size, 77, copy_to), expected)
            << size << " bytes at " << offset;
        ASSERT_TRUE(std::equal(source, source + size, copy.data() + 1)) << size;
        ASSERT_TRUE(copy.front() == 0xaa && copy.back() == 0xaa) << size;
      }
    }
  }
}

TEST(Crc32cTest, GoesOnFromASeedAndCombines) {
  const std::vector<uint8_t> bytes = Pattern(50001);
  const uint32_t whole = Crc32c(bytes);
  for (size_t cut : {0, 1, 8, 4096, 12288, 50000, 50001}) {
    const uint32_t a = Crc32c(bytes.data(), cut);
    const uint32_t b = Crc32c(bytes.data() + cut, bytes.size() - cut);
    EXPECT_EQ(Crc32c(bytes.data() + cut, bytes.size() - cut, a), whole);
    EXPECT_EQ(Crc32cCombine(a, b, bytes.size() - cut), whole);
  }
}

TEST(Crc32cTest, ChangesWithEveryBit) {
  std::vector<uint8_t> bytes = Pattern(13000);
  const uint32_t whole = Crc32c(bytes);
  for (size_t bit = 0; bit < bytes.size() * 8; bit += 997) {
    bytes[bit / 8] ^= 1 << (bit % 8);
    ASSERT_NE(Crc32c(bytes), whole);
    bytes[bit / 8] ^= 1 << (bit % 8);
  }
}

}  // namespace
}  // namespace lodestar::crc32c
