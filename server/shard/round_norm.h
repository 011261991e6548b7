// Brings the buckets of a shard together where their updates need the norm of the whole gradient.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"
#include "server/shard/norm_exchange.h"

namespace lodestar {

// Thread-safe. Its lock is a leaf; call Submit() without a lock held.
class RoundNorm {
 public:
  // Called once per bucket and round, from any thread.
  using Done = std::function<void(absl::StatusOr<double> total_square_sum)>;

  // The exchange must outlive every round submitted to it.
  RoundNorm(int num_buckets, NormExchange* exchange);

  // `bucket` counts from 0 within the shard. All `done` of a round are called when the last bucket
  // has come and the other shards have answered.
  void Submit(Round round, int bucket, std::vector<double> segment_sums, Done done);

 private:
  struct Collected {
    int num_buckets = 0;
    std::vector<std::vector<double>> sums;  // by bucket
    std::vector<Done> done;
  };

  const int num_buckets_;
  NormExchange* const exchange_;
  absl::Mutex mutex_;
  std::map<Round, Collected> rounds_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar
