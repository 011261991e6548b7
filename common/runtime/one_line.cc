// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/one_line.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace lodestar {

std::string OneLine(absl::string_view text) {
  if (!absl::StrContains(text, '\n')) return std::string(text);
  std::string result;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    const absl::string_view joint = result.empty() ? "" : absl::EndsWith(result, ":") ? " " : "; ";
    absl::StrAppend(&result, joint,
                    absl::StrJoin(absl::StrSplit(line, ' ', absl::SkipEmpty()), " "));
  }
  return result;
}

}  // namespace lodestar
