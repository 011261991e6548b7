// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/flag_range.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"

namespace lodestar {
namespace {

template <typename Number>
Number Printable(Number value) {
  return value;
}
std::string Printable(absl::Duration value) { return absl::FormatDuration(value); }

template <typename Number>
absl::Status CheckBounds(absl::string_view flag, Number value, Number lowest, Number highest) {
  if (value >= lowest && value <= highest) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", Printable(value),
                                                 " is out of range; allowed are ",
                                                 Printable(lowest), " to ", Printable(highest)));
}

}  // namespace

absl::Status CheckWholeRange(absl::string_view flag, int64_t value, int64_t lowest,
                             int64_t highest) {
  return CheckBounds(flag, value, lowest, highest);
}

absl::Status CheckDurationRange(absl::string_view flag, absl::Duration value, absl::Duration lowest,
                                absl::Duration highest) {
  return CheckBounds(flag, value, lowest, highest);
}

absl::Status CheckNotTooSmall(absl::string_view name, absl::string_view text, double value) {
  constexpr double kSmallest = std::numeric_limits<double>::min();
  const absl::string_view mantissa = text.substr(0, text.find_first_of("eEpP"));
  const bool is_zero = mantissa.find_first_of("123456789") == absl::string_view::npos;
  if (is_zero || std::isnan(value) || std::abs(value) >= kSmallest) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, "=", text, " is smaller than ", kSmallest,
                   ", the smallest positive number that can be stored; give 0 or a larger number"));
}

absl::Status CheckRange(absl::string_view flag, double value, double lowest, double highest) {
  return CheckBounds(flag, value, lowest, highest);
}

}  // namespace lodestar
