// SPDX-License-Identifier: Apache-2.0

#include "common/job/robust_mean.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"

namespace lodestar::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(RobustMeanTest, TextsReadBack) {
  for (const char* const text : {"none", "median", "trimmed:1", "trimmed:15"}) {
    const auto mean = ParseRobustMean(text);
    ASSERT_OK(mean.status()) << text;
    EXPECT_EQ(RobustMeanText(*mean), text);
    EXPECT_OK(ValidateRobustMean(*mean));
  }
}

TEST(RobustMeanTest, WhatItIsNotIsRefusedByNameWithWhatIsAllowed) {
  for (const char* const text : {"", "mean", "trimmed", "trimmed:", "trimmed:x", "trimmed:0",
                                 "trimmed:-1", "trimmed:16", "Median"}) {
    EXPECT_THAT(ParseRobustMean(text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(absl::StrCat("--robust_mean=", text, " ")),
                               HasSubstr("none, median, trimmed:K with K from 1 to 15"))))
        << text;
  }
  EXPECT_THAT(ParseRobustMean("trimmed:0").status().message(), HasSubstr("trims nothing"));
}

TEST(RobustMeanTest, OneValueIsAlwaysLeft) {
  const RobustMean none;
  const RobustMean median = *ParseRobustMean("median");
  const RobustMean two = *ParseRobustMean("trimmed:2");
  EXPECT_EQ(none.TrimOf(32), 0);
  const int of_median[] = {0, 0, 0, 1, 1, 2, 2, 3};
  const int of_two[] = {0, 0, 0, 1, 1, 2, 2, 2};
  for (int n = 0; n < 8; ++n) {
    EXPECT_EQ(median.TrimOf(n), of_median[n]) << n;
    EXPECT_EQ(two.TrimOf(n), of_two[n]) << n;
  }
  EXPECT_EQ(median.TrimOf(32), 15);
}

TEST(RobustMeanTest, FromSoManyContributionsOnItIsAsStrongAsItSays) {
  EXPECT_EQ(RobustMean().MinContributions(), 1);
  EXPECT_EQ(ParseRobustMean("median")->MinContributions(), 3);
  EXPECT_EQ(ParseRobustMean("trimmed:2")->MinContributions(), 5);
}

}  // namespace
}  // namespace lodestar::job
