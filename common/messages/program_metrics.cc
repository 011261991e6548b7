// SPDX-License-Identifier: Apache-2.0

#include "common/messages/program_metrics.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace lodestar::messages {

absl::Status CheckMetricName(absl::string_view name) {
  const auto is_allowed = [](char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-' || c == '/';
  };
  if (!name.empty() && name.size() <= kMaxMetricNameBytes &&
      std::ranges::all_of(name, is_allowed)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "a metric has the name '", absl::CHexEscape(name.substr(0, kMaxMetricNameBytes)), "'",
      name.size() > kMaxMetricNameBytes ? absl::StrCat("..., ", name.size(), " bytes") : "",
      "; allowed are letters, digits and ._-/; its length in bytes is at most ",
      kMaxMetricNameBytes));
}

void MetricMeans::Add(const Metrics& metrics) {
  for (const auto& [name, value] : metrics) {
    const bool is_usable = std::isfinite(value) && std::abs(value) <= kMaxMetric;
    auto mean = means.find(name);
    if (is_usable && mean == means.end() && means.size() < kMaxMetricsOfRound) {
      mean = means.try_emplace(name).first;
    }
    if (!is_usable || mean == means.end()) {
      ++num_dropped;
      continue;
    }
    ++mean->second.count;
    mean->second.value += (value - mean->second.value) / static_cast<double>(mean->second.count);
  }
}

Metrics MetricMeans::Values() const {
  Metrics values;
  for (const auto& [name, mean] : means) values[name] = mean.value;
  return values;
}

}  // namespace lodestar::messages
