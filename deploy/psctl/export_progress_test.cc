// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/export_progress.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::psctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ExportProgressTest : public testing::Test {
 protected:
  std::string LookAfter(absl::Duration since_start, int64_t num_bytes) {
    return progress_.Look(num_bytes, /*announced_bytes=*/4'000'000, "host:1", "worker a",
                          start_ + since_start);
  }

  const absl::Time start_ = absl::UnixEpoch();
  ExportProgress progress_{start_};
};

TEST_F(ExportProgressTest, TellsHowFarItIsOnceAnInterval) {
  EXPECT_THAT(LookAfter(absl::Seconds(2), 1'000'000), IsEmpty());
  EXPECT_THAT(LookAfter(ExportProgress::kInterval, 2'000'000),
              AllOf(HasSubstr("2.0 MB"), HasSubstr("4.0 MB")));
  EXPECT_THAT(LookAfter(ExportProgress::kInterval + absl::Seconds(1), 3'000'000), IsEmpty());
}

TEST_F(ExportProgressTest, TellsServerAndWhatTheJobWaitsForIfNothingComes) {
  EXPECT_THAT(LookAfter(absl::Seconds(1), 0), IsEmpty());
  EXPECT_THAT(LookAfter(ExportProgress::kPatience, 0),
              AllOf(HasSubstr("host:1"), HasSubstr("worker a"), HasSubstr("3s")));
  EXPECT_THAT(LookAfter(ExportProgress::kPatience + absl::Seconds(1), 0), IsEmpty());
  EXPECT_THAT(LookAfter(ExportProgress::kPatience + ExportProgress::kInterval, 0),
              HasSubstr("host:1"))
      << "and again once an interval";
}

}  // namespace
}  // namespace lodestar::psctl
