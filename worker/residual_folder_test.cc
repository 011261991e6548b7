// SPDX-License-Identifier: Apache-2.0

#include "worker/residual_folder.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/storage/file_system.h"
#include "common/testing/simulated_clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::worker {
namespace {

thread_local int flock_error = 0;  // errno of the next calls of flock(); 0 means that it works

}  // namespace
}  // namespace lodestar::worker

// Takes the place of the C library's function, because no file system at hand lacks locks.
extern "C" int flock(int descriptor, int operation) {
  if (lodestar::worker::flock_error == 0) {
    return static_cast<int>(syscall(SYS_flock, descriptor, operation));
  }
  errno = lodestar::worker::flock_error;
  return -1;
}

namespace lodestar::worker {
namespace {

using ::testing::HasSubstr;

class ResidualFolderTest : public testing::Test {
 protected:
  ResidualFolderTest() {
    EXPECT_OK(storage::FileSystem::Real().RemoveAll(state_));
    EXPECT_OK(storage::FileSystem::Real().CreateDirectories(state_));
    EXPECT_EQ(chmod(state_.c_str(), S_IRWXU), 0);
  }

  absl::StatusOr<std::unique_ptr<ResidualFolder>> Take(
      absl::Duration patience = absl::ZeroDuration()) {
    return ResidualFolder::Take(path_, "w", &clock_, patience);
  }

  SimulatedClock clock_;

  const std::string state_ = absl::StrCat(testing::TempDir(), "/residual_folder");
  const std::string path_ = ResidualFolderIn(state_, "w");
};

TEST_F(ResidualFolderTest, TheNextProcessHasTheInstanceOfOneThatWasKilled) {
  {
    const auto folder = Take();
    ASSERT_OK(folder);
    EXPECT_EQ((*folder)->former_instance(), 0);
    ASSERT_OK((*folder)->WriteInstance(~0ull));
    EXPECT_THAT(Take(), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(path_)));
  }
  {
    const auto folder = Take();
    ASSERT_OK(folder);
    EXPECT_EQ((*folder)->former_instance(), ~0ull);
    ASSERT_OK((*folder)->RemoveInstance());
    ASSERT_OK((*folder)->RemoveInstance());
  }
  EXPECT_EQ((*Take())->former_instance(), 0);
}

TEST_F(ResidualFolderTest, WaitsForAProcessThatIsBeingKilled) {
  absl::StatusOr<std::unique_ptr<ResidualFolder>> first = Take();
  ASSERT_OK(first);
  std::thread next([&] { EXPECT_OK(Take(absl::Minutes(1))); });
  clock_.AwaitSleepers(1);
  first->reset();
  clock_.AdvanceTime(absl::Seconds(1));
  next.join();
}

TEST_F(ResidualFolderTest, WaitsForOneThatGoesOnOnlySoLong) {
  const absl::StatusOr<std::unique_ptr<ResidualFolder>> first = Take();
  ASSERT_OK(first);
  std::thread next(
      [&] { EXPECT_THAT(Take(absl::Minutes(1)), StatusIs(absl::StatusCode::kAlreadyExists)); });
  clock_.AwaitSleepers(1);
  clock_.AdvanceTime(absl::Minutes(2));
  next.join();
}

TEST_F(ResidualFolderTest, FileSystemWithoutLocksIsAccepted) {
  flock_error = ENOSYS;
  EXPECT_OK(Take());
  flock_error = 0;
}

TEST_F(ResidualFolderTest, AFolderThatOthersMayWriteIsRefused) {
  ASSERT_OK(Take());
  ASSERT_EQ(chmod(path_.c_str(), S_IRWXU | S_IRWXG | S_IRWXO), 0);
  EXPECT_THAT(Take(), StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr(path_)));
}

TEST(KeepResidualsTest, OnlyJobsWithErrorFeedbackWrite) {
  job::JobSpec job;
  job.mode = job::Mode::kLocalSgd;
  job.push_encoding = params::Encoding::kInt8;
  EXPECT_TRUE(KeepsResidual(KeepResiduals::kLocalSteps, job));
  EXPECT_FALSE(KeepsResidual(KeepResiduals::kNever, job));
  job.mode = job::Mode::kSync;
  EXPECT_FALSE(KeepsResidual(KeepResiduals::kLocalSteps, job)) << "every step would wait";
  EXPECT_TRUE(KeepsResidual(KeepResiduals::kAlways, job));
  job.error_feedback = false;
  EXPECT_FALSE(KeepsResidual(KeepResiduals::kAlways, job));
  job.error_feedback = true;
  job.push_encoding = params::Encoding::kFp32;
  EXPECT_FALSE(KeepsResidual(KeepResiduals::kAlways, job));
}

TEST(KeepResidualsTest, WithoutANameOrAFolderThereIsNoPlace) {
  EXPECT_EQ(ResidualFolderIn("s", "w"), "s/residuals/w");
  EXPECT_EQ(ResidualFolderIn("", "w"), "");
  EXPECT_EQ(ResidualFolderIn("s", ""), "");
}

}  // namespace
}  // namespace lodestar::worker
