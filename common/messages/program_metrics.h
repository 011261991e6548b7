// What programs tell of their steps beside the loss: numbers by name. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lodestar {

// One worker may tell at most this many metrics of one round.
inline constexpr size_t kMaxMetrics = 32;
inline constexpr size_t kMaxMetricNameBytes = 64;
// So many metrics of a round of all workers are shown.
inline constexpr size_t kMaxMetricsOfRound = 64;
// Beyond it a value says no more than one that is not finite, and sums of values would not be.
inline constexpr double kMaxMetric = 1e100;

using Metrics = std::map<std::string, double>;

// Errors: InvalidArgument with what is allowed.
absl::Status CheckMetricName(absl::string_view name);

// Means by name, of those that have told each. Plain data.
struct MetricMeans {
  struct Mean {
    double value = 0.0;
    int64_t count = 0;
    friend bool operator==(const Mean&, const Mean&) = default;
  };
  std::map<std::string, Mean> means;
  int64_t num_dropped = 0;  // values

  // Drops values that are not finite or beyond kMaxMetric, and names beyond kMaxMetricsOfRound.
  void Add(const Metrics& metrics);
  Metrics Values() const;
  friend bool operator==(const MetricMeans&, const MetricMeans&) = default;
};

}  // namespace lodestar
