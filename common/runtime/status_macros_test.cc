// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/status_macros.h"

#include <gtest/gtest.h>

#include <memory>

#include "common/testing/status_matchers.h"

namespace lodestar {
namespace {

absl::Status Pass(absl::Status status, bool& went_on) {
  RETURN_IF_ERROR(status);
  went_on = true;
  return absl::OkStatus();
}

absl::StatusOr<int> Sum(absl::StatusOr<int> a, absl::StatusOr<int> b) {
  ASSIGN_OR_RETURN(const int first, a);
  ASSIGN_OR_RETURN(const int second, b);
  return first + second;
}

absl::StatusOr<std::unique_ptr<int>> Make() { return std::make_unique<int>(5); }

absl::StatusOr<int> Unwrap() {
  ASSIGN_OR_RETURN(const std::unique_ptr<int> value, Make());
  return *value;
}

TEST(StatusMacrosTest, ReturnIfErrorStopsAtTheFirstError) {
  bool went_on = false;
  EXPECT_THAT(Pass(absl::AbortedError("rejoin"), went_on),
              StatusIs(absl::StatusCode::kAborted, "rejoin"));
  EXPECT_FALSE(went_on);
  EXPECT_OK(Pass(absl::OkStatus(), went_on));
  EXPECT_TRUE(went_on);
}

TEST(StatusMacrosTest, AssignOrReturnGivesTheValueOrTheError) {
  EXPECT_THAT(Sum(2, 3), IsOkAndHolds(5));
  EXPECT_THAT(Sum(2, absl::NotFoundError("b")), StatusIs(absl::StatusCode::kNotFound, "b"));
  EXPECT_THAT(Unwrap(), IsOkAndHolds(5));
}

TEST(StatusMatchersTest, TellCodesAndMessagesApart) {
  const absl::Status status = absl::NotFoundError("no such file");
  EXPECT_THAT(status, ::testing::Not(IsOk()));
  EXPECT_THAT(status, ::testing::Not(StatusIs(absl::StatusCode::kAborted)));
  EXPECT_THAT(status, ::testing::Not(StatusIs(absl::StatusCode::kNotFound, "other")));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, ::testing::HasSubstr("such")));
  EXPECT_THAT(absl::StatusOr<int>(status), ::testing::Not(IsOkAndHolds(0)));
  ASSERT_OK_AND_ASSIGN(const int value, absl::StatusOr<int>(3));
  EXPECT_EQ(value, 3);
}

}  // namespace
}  // namespace lodestar
