// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/bytes_text.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lodestar {

std::string BytesText(int64_t bytes) {
  if (bytes < 1'000) return absl::StrCat(bytes, " B");
  if (bytes < 1'000'000) return absl::StrFormat("%.1f kB", bytes / 1e3);
  if (bytes < 1'000'000'000) return absl::StrFormat("%.1f MB", bytes / 1e6);
  return absl::StrFormat("%.2f GB", bytes / 1e9);
}

absl::StatusOr<int64_t> ParseBytes(absl::string_view text) {
  constexpr std::pair<absl::string_view, double> kUnits[] = {
      {"", 1.0},           {"b", 1.0},
      {"kb", 1e3},         {"mb", 1e6},
      {"gb", 1e9},         {"tb", 1e12},
      {"kib", 1024.0},     {"mib", 1048576.0},
      {"gib", 1073741824}, {"tib", 1099511627776}};
  const size_t unit_begin = std::min(text.find_first_not_of("0123456789.-+"), text.size());
  const std::string unit =
      absl::AsciiStrToLower(absl::StripLeadingAsciiWhitespace(text.substr(unit_begin)));
  int64_t whole = 0;
  if (unit.empty() && absl::SimpleAtoi(text, &whole) && whole >= 0) return whole;
  double number = 0.0;
  const bool is_number = absl::SimpleAtod(text.substr(0, unit_begin), &number) && number >= 0.0;
  for (const auto& [name, bytes] : kUnits) {
    if (unit != name || !is_number || number * bytes >= 0x1p63) continue;
    return static_cast<int64_t>(std::round(number * bytes));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is not a number of bytes; write it like 500MB, 4GiB or 4000000000"));
}

}  // namespace lodestar
