// SPDX-License-Identifier: Apache-2.0

#include "server/status/status_board.h"

#include <algorithm>
#include <utility>

namespace lodestar::status {

void StatusBoard::SetReading(int shard, ShardReading reading) {
  absl::MutexLock lock(&mutex_);
  readings_[shard] = std::move(reading);
}

ClusterReport StatusBoard::Report(coordinator::ClusterSnapshot cluster) const {
  ClusterReport report;
  absl::MutexLock lock(&mutex_);
  for (const coordinator::ShardSnapshot& place : cluster.shards) {
    ShardLine line{place, {}};
    const auto reading = readings_.find(place.shard);
    if (reading != readings_.end()) line.reading = reading->second;
    const std::vector<uint64_t>& histogram = line.reading.stats.staleness_histogram;
    report.staleness_histogram.resize(
        std::max(report.staleness_histogram.size(), histogram.size()));
    for (size_t i = 0; i < histogram.size(); ++i) report.staleness_histogram[i] += histogram[i];
    report.shards.push_back(std::move(line));
  }
  report.cluster = std::move(cluster);
  return report;
}

}  // namespace lodestar::status
