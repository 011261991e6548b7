// SPDX-License-Identifier: Apache-2.0

// Maps our errors to HTTP status codes.
#pragma once

#include "absl/status/status.h"

namespace lodestar::http {

// Returns the HTTP status code for `error`. Requires: !error.ok().
int HttpCodeOf(const absl::Status& error);

}  // namespace lodestar::http
