// SPDX-License-Identifier: Apache-2.0

// InProcessNorms adds up what all shards of one process submit, in order of shard.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/runtime/ids.h"
#include "server/shard/norm_exchange.h"

namespace lodestar::shard {

// The class is thread-safe. It must outlive its exchanges.
class InProcessNorms {
 public:
  explicit InProcessNorms(int num_shards) : num_shards_(num_shards) {}
  std::unique_ptr<NormExchange> ForShard(int shard);

 private:
  class Port;
  struct Collected {
    std::map<int, std::vector<double>> sums;
    std::vector<std::function<void(absl::StatusOr<double>)>> done;
  };
  void Submit(int shard, Round round, std::vector<double> sums,
              std::function<void(absl::StatusOr<double>)> done);

  const int num_shards_;
  absl::Mutex mutex_;
  std::map<Round, Collected> rounds_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::shard
