#include "common/bytes_text.h"

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

}  // namespace
}  // namespace lodestar
