// SPDX-License-Identifier: Apache-2.0

// The content of dashboard.html, compiled into the program.
#pragma once

#include "absl/strings/string_view.h"

namespace lodestar::http {

extern const absl::string_view kDashboardPage;

}  // namespace lodestar::http
