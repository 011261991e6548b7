// The page that dashboard.html is, for the program to have it with it.
#pragma once

#include "absl/strings/string_view.h"

namespace lodestar {

extern const absl::string_view kDashboardPage;

}  // namespace lodestar
