// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/flag_range.h"

#include <limits>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar {
namespace {

TEST(FlagRangeTest, TakesTheBoundsAndNamesThemOtherwise) {
  EXPECT_OK(CheckWholeRange("rounds", 1, 1, 9));
  EXPECT_OK(CheckWholeRange("rounds", 9, 1, 9));
  EXPECT_THAT(CheckWholeRange("rounds", 0, 1, 9),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "--rounds=0 is out of range; allowed are 1 to 9"));
  EXPECT_THAT(CheckWholeRange("rounds", 10, 1, 9), testing::Not(IsOk()));
}

TEST(FlagRangeTest, RefusesWhatIsNoNumber) {
  EXPECT_OK(CheckRange("beta1", 0.5, 0.0, 1.0));
  EXPECT_THAT(CheckRange("beta1", -0.5, 0.0, 1e6),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "--beta1=-0.5 is out of range; allowed are 0 to 1e+06"));
  EXPECT_THAT(CheckRange("beta1", std::numeric_limits<double>::quiet_NaN(), 0.0, 1.0),
              testing::Not(IsOk()));
  EXPECT_THAT(CheckRange("beta1", std::numeric_limits<double>::infinity(), 0.0, 1.0),
              testing::Not(IsOk()));
}

}  // namespace
}  // namespace lodestar
