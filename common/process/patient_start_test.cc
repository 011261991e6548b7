// SPDX-License-Identifier: Apache-2.0

#include "common/process/patient_start.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

namespace lodestar::process {
namespace {

// A system that refuses threads until a given time.
class PatientStartTest : public ::testing::Test {
 protected:
  // Starts a thread. The system returns `error` for the time `refusal`, and then `last`.
  int Start(absl::Duration refusal, int error = EAGAIN, int last = 0) {
    const absl::Time end = now_ + refusal;
    return StartPatiently({
        .start = [&] { return now_ < end ? error : last; },
        .now = [&] { return now_; },
        .pause = [&](absl::Duration pause) { now_ += pause; },
        .tell = [&](StartNews news) { told_.push_back(news); },
    });
  }

  const absl::Time begin_ = absl::FromUnixSeconds(1'000'000);
  absl::Time now_ = begin_;
  std::vector<StartNews> told_;
};

TEST_F(PatientStartTest, FreeThreadIsTakenAtOnce) {
  EXPECT_EQ(Start(absl::ZeroDuration()), 0);
  EXPECT_EQ(now_, begin_);
  EXPECT_TRUE(told_.empty());
}

TEST_F(PatientStartTest, ShortRefusalIsNotTold) {
  EXPECT_EQ(Start(kUntoldRefusal - absl::Milliseconds(100)), 0);
  EXPECT_TRUE(told_.empty());
}

TEST_F(PatientStartTest, LongRefusalAndItsEndAreToldOnce) {
  for (const int error : {EAGAIN, ENOMEM}) {
    told_.clear();
    EXPECT_EQ(Start(kStartPatience - absl::Seconds(1), error), 0);
    EXPECT_EQ(told_, std::vector({StartNews::kRefused, StartNews::kNotRefused}));
  }
}

TEST_F(PatientStartTest, RefusalThatDoesNotEndIsReturned) {
  EXPECT_EQ(Start(absl::Hours(1)), EAGAIN);
  EXPECT_GE(now_ - begin_, kStartPatience);
  EXPECT_LT(now_ - begin_, kStartPatience + absl::Seconds(1));
  EXPECT_EQ(told_, std::vector({StartNews::kRefused}));
}

TEST_F(PatientStartTest, OtherErrorEndsARefusalThatWasTold) {
  EXPECT_EQ(Start(2 * kUntoldRefusal, EAGAIN, EINVAL), EINVAL);
  EXPECT_EQ(told_, std::vector({StartNews::kRefused, StartNews::kNotRefused}));
}

TEST_F(PatientStartTest, OtherErrorIsReturnedAtOnce) {
  EXPECT_EQ(Start(absl::Hours(1), EINVAL), EINVAL);
  EXPECT_EQ(now_, begin_);
  EXPECT_TRUE(told_.empty());
}

}  // namespace
}  // namespace lodestar::process
