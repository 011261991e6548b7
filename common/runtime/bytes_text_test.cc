// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/bytes_text.h"

#include "gtest/gtest.h"

namespace lodestar {
namespace {

TEST(BytesTextTest, UnitFitsTheNumber) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(999), "999 B");
  EXPECT_EQ(BytesText(1'000), "1.0 kB");
  EXPECT_EQ(BytesText(31'344), "31.3 kB");
  EXPECT_EQ(BytesText(3'500'000), "3.5 MB");
  EXPECT_EQ(BytesText(2'250'000'000), "2.25 GB");
}

TEST(ParseBytesTest, TakesTheUnitsOfDisksAndOfMemory) {
  EXPECT_EQ(ParseBytes("0").value(), 0);
  EXPECT_EQ(ParseBytes("9007199254740993").value(), 9'007'199'254'740'993) << "no double";
  EXPECT_EQ(ParseBytes("512 B").value(), 512);
  EXPECT_EQ(ParseBytes("500MB").value(), 500'000'000);
  EXPECT_EQ(ParseBytes("1.5gb").value(), 1'500'000'000);
  EXPECT_EQ(ParseBytes("4GiB").value(), int64_t{4} << 30);
  EXPECT_EQ(ParseBytes("2 TiB").value(), int64_t{2} << 40);
  EXPECT_EQ(ParseBytes(BytesText(2'250'000'000)).value(), 2'250'000'000);
}

TEST(ParseBytesTest, RefusesWhatIsNone) {
  for (const char* text : {"", "GB", "-1", "-1MB", "4G", "4 G B", "1e3", "0x10", "1.2.3", "nan",
                           "8388608TiB", "9223372036854775808"}) {
    EXPECT_EQ(ParseBytes(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace lodestar
