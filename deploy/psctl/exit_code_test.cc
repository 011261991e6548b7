// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/exit_code.h"

#include <gtest/gtest.h>

namespace lodestar::psctl {
namespace {

TEST(ExitCodeTest, WhatAServerMayDoLaterIsWorthAnotherTry) {
  EXPECT_EQ(ExitCodeOfCall(absl::UnavailableError("connection refused")), kExitRetry);
  EXPECT_EQ(ExitCodeOfCall(absl::DeadlineExceededError("no answer in 10s")), kExitRetry);
  EXPECT_EQ(ExitCodeOfCall(absl::ResourceExhaustedError("four exports are under way")), kExitRetry);
}

TEST(ExitCodeTest, ARefusalThatNamesItsCauseIsFinal) {
  EXPECT_EQ(ExitCodeOfCall(absl::FailedPreconditionError("nothing to save yet")), kExitError);
  EXPECT_EQ(ExitCodeOfCall(absl::InvalidArgumentError("no such shard")), kExitBadFlags);
  EXPECT_EQ(ExitCodeOfCall(absl::UnimplementedError("no such call")), kExitError);
}

TEST(ExitCodeTest, WhatFailsOnThisMachineFailsAgain) {
  EXPECT_EQ(ExitCodeOfError(absl::ResourceExhaustedError("the disk is full")), kExitError);
  EXPECT_EQ(ExitCodeOfError(absl::InvalidArgumentError("--out=/dev is a folder")), kExitBadFlags);
}

}  // namespace
}  // namespace lodestar::psctl
