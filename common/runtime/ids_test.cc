// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/ids.h"

#include <gtest/gtest.h>

#include <sstream>
#include <type_traits>

#include "absl/hash/hash.h"

namespace lodestar {
namespace {

static_assert(!std::is_convertible_v<Round, Version>);
static_assert(!std::is_convertible_v<int64_t, Round>);
static_assert(!std::is_convertible_v<Round, int64_t>);
static_assert(sizeof(WorkerId) == sizeof(uint32_t));

TEST(IdsTest, CountsAndCompares) {
  Round round(41);
  ++round;
  EXPECT_EQ(round, Round(42));
  EXPECT_LT(round, round + 1);
  EXPECT_EQ((round + 8) - round, 8);
  EXPECT_EQ(Version().value(), 0);
}

TEST(IdsTest, HashesAndPrintsItsValue) {
  EXPECT_EQ(absl::HashOf(WorkerId(7)), absl::HashOf(WorkerId(7)));
  EXPECT_NE(absl::HashOf(WorkerId(7)), absl::HashOf(WorkerId(8)));
  std::ostringstream out;
  out << WorkerId(65);
  EXPECT_EQ(out.str(), "65");
}

}  // namespace
}  // namespace lodestar
