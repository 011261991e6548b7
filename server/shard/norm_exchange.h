// How the buckets of a shard learn the norm of a gradient whose other parts lie in other buckets
// and on other shards.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"

namespace lodestar {

// Among the shards.
class NormExchange {
 public:
  virtual ~NormExchange() = default;

  // Takes this shard's sums of squares of `round`, one per segment in order of the parameter space
  // (SegmentsOf() in common/shard_plan.h), and calls `done` once, from any thread, with the sum
  // over all shards: a plain left-to-right sum over all segments of the space, so that it is the
  // same to the bit for any number of shards. An error means that there will be no answer.
  virtual void Submit(Round round, std::vector<double> segment_sums,
                      std::function<void(absl::StatusOr<double>)> done) = 0;
};

// Among the buckets of one shard. Thread-safe. Its lock is a leaf; call Submit() without a lock
// held.
class RoundNorm {
 public:
  // Called once per bucket and round, from any thread.
  using Done = std::function<void(absl::StatusOr<double> total_square_sum)>;

  RoundNorm(int num_buckets, std::shared_ptr<NormExchange> exchange);

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
  const std::shared_ptr<NormExchange> exchange_;
  absl::Mutex mutex_;
  std::map<Round, Collected> rounds_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar
