#include "common/remedy.h"

#include <gtest/gtest.h>

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
  EXPECT_EQ(RemedyFor(absl::UnimplementedError("")), Remedy::kGiveUp);
  EXPECT_EQ(RemedyFor(static_cast<absl::StatusCode>(99)), Remedy::kGiveUp);
}

}  // namespace
}  // namespace lodestar
