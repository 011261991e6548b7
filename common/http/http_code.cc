// SPDX-License-Identifier: Apache-2.0

#include "common/http/http_code.h"

namespace lodestar::http {

int HttpCodeOf(const absl::Status& error) {
  switch (error.code()) {
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kFailedPrecondition:
      return 409;
    case absl::StatusCode::kDataLoss:
      return 422;  // the data exists but cannot be read
    case absl::StatusCode::kUnavailable:
      return 503;
    default:
      return 500;
  }
}

}  // namespace lodestar::http
