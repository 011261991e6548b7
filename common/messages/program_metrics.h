// SPDX-License-Identifier: Apache-2.0

// Metrics of a program's steps besides the loss: numbers by name. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lodestar::messages {

// Maximum number of metrics of one worker for one round.
inline constexpr size_t kMaxMetrics = 32;
inline constexpr size_t kMaxMetricNameBytes = 64;
// Maximum number of metrics that are shown for one round of all workers.
inline constexpr size_t kMaxMetricsOfRound = 64;
// Maximum absolute value. A larger value is as useless as one that is not finite, and sums of such
// values would overflow.
inline constexpr double kMaxMetric = 1e100;

using Metrics = std::map<std::string, double>;

// Checks the name of a metric. Errors: InvalidArgument with what is allowed.
absl::Status CheckMetricName(absl::string_view name);

// Mean of each metric over the workers that have reported it. Plain data.
struct MetricMeans {
  struct Mean {
    double value = 0.0;
    int64_t count = 0;
    friend bool operator==(const Mean&, const Mean&) = default;
  };
  std::map<std::string, Mean> means;
  int64_t num_dropped = 0;  // number of dropped values

  // Adds the metrics of one worker. Drops values that are not finite or above kMaxMetric. If there
  // are kMaxMetricsOfRound names already, drops new names.
  void Add(const Metrics& metrics);
  Metrics Values() const;
  friend bool operator==(const MetricMeans&, const MetricMeans&) = default;
};

}  // namespace lodestar::messages
