// SPDX-License-Identifier: Apache-2.0

// OneLine() makes one line of a text of several lines, such as a table.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace lodestar {

// Joins the lines of `text` with "; ", or with a space after a line that ends in a colon. Several
// spaces become one, and empty lines are dropped. A text of one line stays unchanged.
std::string OneLine(absl::string_view text);

}  // namespace lodestar
