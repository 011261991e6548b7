// SPDX-License-Identifier: Apache-2.0

// RETURN_IF_ERROR and ASSIGN_OR_RETURN for absl::Status. Outside kernels/cuda the only other
// function-like macros are LODESTAR_CHECK (check.h), the logging macros (logging.h) and the
// matchers of tests.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define LODESTAR_CONCAT_INNER(a, b) a##b
#define LODESTAR_CONCAT(a, b) LODESTAR_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expression)                                                               \
  do {                                                                                            \
    if (::absl::Status lodestar_returned_status = (expression); !lodestar_returned_status.ok()) { \
      return lodestar_returned_status;                                                            \
    }                                                                                             \
  } while (false)

#define ASSIGN_OR_RETURN(lhs, expression) \
  LODESTAR_ASSIGN_OR_RETURN(LODESTAR_CONCAT(status_or_, __LINE__), lhs, expression)

#define LODESTAR_ASSIGN_OR_RETURN(temporary, lhs, expression) \
  auto temporary = (expression);                              \
  if (!temporary.ok()) return std::move(temporary).status();  \
  lhs = *std::move(temporary)
