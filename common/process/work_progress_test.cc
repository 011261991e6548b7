// SPDX-License-Identifier: Apache-2.0

#include "common/process/work_progress.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::process {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const absl::Time kStart = absl::UnixEpoch();

TEST(WorkProgressTest, IsSilentAboutWorkOfLessThanTenSeconds) {
  WorkProgress progress(1000, kStart);
  EXPECT_FALSE(progress.OnPiece(500, kStart));
  EXPECT_FALSE(progress.OnPiece(500, kStart + absl::Seconds(9)));
}

TEST(WorkProgressTest, TellsEveryTenSecondsHowMuchIsDoneAndHowLongItStillTakes) {
  WorkProgress progress(9000, kStart);
  EXPECT_FALSE(progress.OnPiece(3000, kStart));
  EXPECT_TRUE(progress.OnPiece(1000, kStart + absl::Seconds(10)));
  EXPECT_EQ(progress.done(), 3000);
  EXPECT_THAT(progress.ShareText(kStart + absl::Seconds(10)), HasSubstr("33 %"));
  EXPECT_THAT(progress.ShareText(kStart + absl::Seconds(10)), HasSubstr("20s"));
  EXPECT_FALSE(progress.OnPiece(0, kStart + absl::Seconds(19)));
  EXPECT_TRUE(progress.OnPiece(0, kStart + absl::Seconds(20)));
  EXPECT_EQ(progress.done(), 4000);
}

TEST(WorkProgressTest, NamesNoTimeBeforeAnythingIsDone) {
  WorkProgress progress(0, kStart);
  EXPECT_TRUE(progress.OnPiece(0, kStart + absl::Seconds(10)));
  EXPECT_THAT(progress.ShareText(kStart + absl::Seconds(10)), Not(HasSubstr("more")));
}

}  // namespace
}  // namespace lodestar::process
