// SPDX-License-Identifier: Apache-2.0

#include "common/messages/program_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"

namespace lodestar::messages {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(ProgramMetricsTest, NamesAreShortAndPlain) {
  EXPECT_OK(CheckMetricName("train/grad_norm.l2-0"));
  EXPECT_OK(CheckMetricName(std::string(64, 'a')));
  for (const std::string& name : {std::string(), std::string("a b"), std::string("a\"b"),
                                  std::string("\xc3\xa4"), std::string(65, 'a')}) {
    EXPECT_THAT(CheckMetricName(name),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is at most 64")))
        << name;
  }
}

TEST(ProgramMetricsTest, AMeanIsOfThoseThatHaveToldIt) {
  MetricMeans means;
  means.Add({{"a", 1.0}, {"b", 10.0}});
  means.Add({{"a", 2.0}});
  means.Add({{"a", 6.0}});
  EXPECT_THAT(means.Values(), ElementsAre(Pair("a", 3.0), Pair("b", 10.0)));
  EXPECT_EQ(means.num_dropped, 0);
}

TEST(ProgramMetricsTest, WhatIsNotFiniteIsDroppedAndCounted) {
  MetricMeans means;
  means.Add({{"a", std::numeric_limits<double>::quiet_NaN()},
             {"b", -std::numeric_limits<double>::infinity()},
             {"c", 2e100}});
  EXPECT_THAT(means.Values(), IsEmpty());
  EXPECT_EQ(means.num_dropped, 3);
  means.Add({{"a", 1e100}});
  means.Add({{"a", -1e100}});
  EXPECT_THAT(means.Values(), ElementsAre(Pair("a", 0.0)));
}

TEST(ProgramMetricsTest, ARoundHasABoundedNumberOfNames) {
  MetricMeans means;
  for (size_t i = 0; i < kMaxMetricsOfRound + 5; ++i) means.Add({{absl::StrCat("m", i), 1.0}});
  EXPECT_EQ(means.Values().size(), kMaxMetricsOfRound);
  EXPECT_EQ(means.num_dropped, 5);
  means.Add({{"m0", 3.0}});
  EXPECT_EQ(means.Values()["m0"], 2.0);
}

}  // namespace
}  // namespace lodestar::messages
