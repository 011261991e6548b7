// OneLine: a text of several lines, such as a table, for where only one line is shown.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace lodestar {

// Joins the lines of `text` with "; ", or after a colon with a space. Several spaces become one,
// and empty lines are dropped. A text of one line stays as it is.
std::string OneLine(absl::string_view text);

}  // namespace lodestar
