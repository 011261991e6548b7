// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/remedy.h"

#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace lodestar {
namespace {

TEST(RemedyTest, OnlyRefusalsThatNameTheirCauseAreFinal) {
  EXPECT_EQ(RemedyFor(absl::UnavailableError("")), Remedy::kRepeat);
  EXPECT_EQ(RemedyFor(absl::DeadlineExceededError("")), Remedy::kRepeat);
  EXPECT_EQ(RemedyFor(absl::ResourceExhaustedError("")), Remedy::kRepeat);
  EXPECT_EQ(RemedyFor(absl::DataLossError("")), Remedy::kRepeat);
  EXPECT_EQ(RemedyFor(absl::AbortedError("")), Remedy::kRejoin);
  EXPECT_EQ(RemedyFor(absl::CancelledError("")), Remedy::kRejoin);
  EXPECT_EQ(RemedyFor(absl::AlreadyExistsError("")), Remedy::kAwaitLease);
  EXPECT_EQ(RemedyFor(absl::InvalidArgumentError("")), Remedy::kGiveUp);
  EXPECT_EQ(RemedyFor(absl::FailedPreconditionError("")), Remedy::kGiveUp);
  EXPECT_EQ(RemedyFor(absl::UnimplementedError("")), Remedy::kReconnect);
  EXPECT_EQ(RemedyFor(absl::UnauthenticatedError("")), Remedy::kReconnect);
  EXPECT_EQ(RemedyFor(static_cast<absl::StatusCode>(99)), Remedy::kGiveUp);
}

TEST(RemedyTest, APeerThatDoesNotKnowACallIsOneThatSaysSoEveryTime) {
  const absl::Status unknown = absl::UnimplementedError("what?");
  UnknownCalls calls;
  for (int i = 1; i < UnknownCalls::kMaxInARow; ++i) EXPECT_FALSE(calls.IsFinal(unknown, false));
  EXPECT_FALSE(calls.IsFinal(absl::UnavailableError("away"), false));
  EXPECT_TRUE(calls.IsFinal(unknown, false));

  UnknownCalls damaged;
  for (int i = 0; i < 3 * UnknownCalls::kMaxInARow; ++i) {
    EXPECT_FALSE(damaged.IsFinal(unknown, /*has_worked=*/true));
  }
}

TEST(RemedyTest, AnErrorOfThisMachineIsFinal) {
  EXPECT_OK(AsFinal(absl::OkStatus()));
  EXPECT_EQ(AsFinal(absl::UnavailableError("no card")), absl::FailedPreconditionError("no card"));
  EXPECT_EQ(AsFinal(absl::NotFoundError("no file")), absl::NotFoundError("no file"));
}

}  // namespace
}  // namespace lodestar
