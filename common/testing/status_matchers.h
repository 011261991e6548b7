// SPDX-License-Identifier: Apache-2.0

// Matchers and assertions for absl::Status and absl::StatusOr. Later versions of Abseil have them
// with the same names.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/runtime/status_macros.h"

namespace lodestar {
namespace status_matchers_internal {

inline const absl::Status& GetStatus(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& GetStatus(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}

}  // namespace status_matchers_internal

MATCHER(IsOk, negation ? "is not OK" : "is OK") {
  const absl::Status& status = status_matchers_internal::GetStatus(arg);
  *result_listener << "whose status is " << status.ToString();
  return status.ok();
}

MATCHER_P2(StatusIs, code, message_matcher, "has the given code and a matching message") {
  const absl::Status& status = status_matchers_internal::GetStatus(arg);
  *result_listener << "whose status is " << status.ToString();
  return status.code() == code &&
         ::testing::ExplainMatchResult(message_matcher, std::string(status.message()),
                                       result_listener);
}

inline auto StatusIs(absl::StatusCode code) { return StatusIs(code, ::testing::_); }

MATCHER_P(IsOkAndHolds, value_matcher, "is OK and holds a matching value") {
  if (!arg.ok()) {
    *result_listener << "whose status is " << arg.status().ToString();
    return false;
  }
  return ::testing::ExplainMatchResult(value_matcher, *arg, result_listener);
}

}  // namespace lodestar

#define ASSERT_OK(expression) ASSERT_THAT((expression), ::lodestar::IsOk())
#define EXPECT_OK(expression) EXPECT_THAT((expression), ::lodestar::IsOk())

#define ASSERT_OK_AND_ASSIGN(lhs, expression) \
  LODESTAR_ASSERT_OK_AND_ASSIGN(LODESTAR_CONCAT(status_or_, __LINE__), lhs, expression)

#define LODESTAR_ASSERT_OK_AND_ASSIGN(temporary, lhs, expression) \
  auto temporary = (expression);                                  \
  ASSERT_THAT(temporary, ::lodestar::IsOk());                     \
  lhs = *std::move(temporary)
