// SPDX-License-Identifier: Apache-2.0

#include "server/outer_preset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"

namespace lodestar::server {
namespace {

using ::testing::HasSubstr;

TEST(OuterPresetTest, AsPublished) {
  const OuterSettings diloco = *OuterPreset("diloco", 8);
  EXPECT_EQ(diloco.optimizer, job::OuterOptimizerKind::kNesterov);
  EXPECT_EQ(diloco.learning_rate, 0.7);
  EXPECT_EQ(diloco.momentum, 0.9);
  EXPECT_EQ(diloco.local_steps, 500);
  EXPECT_EQ(OuterPreset("streaming", 2)->learning_rate, 0.4);
  const OuterSettings sparse = *OuterPreset("sparse_loco", 8);
  EXPECT_EQ(sparse.optimizer, job::OuterOptimizerKind::kSgd);
  EXPECT_EQ(sparse.learning_rate, 1.0);
  EXPECT_EQ(sparse.local_steps, 15);
}

TEST(OuterPresetTest, TheRateGrowsWithTheWorkers) {
  for (const auto& [workers, rate] : {std::pair(1, 0.5), std::pair(2, 0.6), std::pair(4, 0.6),
                                      std::pair(8, 0.8), std::pair(64, 0.8)}) {
    EXPECT_EQ(OuterPreset("scaling_laws", workers)->learning_rate, rate) << workers;
  }
}

TEST(OuterPresetTest, UnknownNamesAreRefused) {
  EXPECT_THAT(
      OuterPreset("dilocco", 2),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("--outer_preset=dilocco is unknown; allowed: diloco, scaling_laws")));
}

}  // namespace
}  // namespace lodestar::server
