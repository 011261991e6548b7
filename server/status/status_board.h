// SPDX-License-Identifier: Apache-2.0

// StatusBoard puts together what the status page shows: the coordinator's snapshot and the latest
// readings of every shard.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/coordinator/cluster_snapshot.h"
#include "server/shard/shard_observer.h"

namespace lodestar::status {

// The values that one server measures about itself.
struct ShardReading {
  shard::ShardStats stats;
  uint64_t bytes_received = 0;  // payload bytes since the server started
  uint64_t bytes_sent = 0;
};

struct ShardLine {
  coordinator::ShardSnapshot place;
  ShardReading reading;  // zeros until the shard has reported
};

struct ClusterReport {
  coordinator::ClusterSnapshot cluster;
  std::vector<ShardLine> shards;              // indexed by shard
  std::vector<uint64_t> staleness_histogram;  // all shards; [s]: number counted with staleness s
};

// The class is thread-safe.
class StatusBoard {
 public:
  void SetReading(int shard, ShardReading reading) ABSL_LOCKS_EXCLUDED(mutex_);
  ClusterReport Report(coordinator::ClusterSnapshot cluster) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  std::map<int, ShardReading> readings_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::status
