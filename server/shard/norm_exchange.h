// By a NormExchange the buckets of a shard learn the norm of a gradient whose other parts lie in
// other buckets and on other shards.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/runtime/ids.h"

namespace lodestar::shard {

// Among the shards.
class NormExchange {
 public:
  virtual ~NormExchange() = default;

  // Takes this shard's sums of squares of `round`, one per segment in order of the parameter space
  // (SegmentsOf() in common/params/shard_plan.h), and calls `done` once, from any thread, with the
  // sum over all shards: a plain left-to-right sum over all segments of the space, so that it is
  // the same to the bit for any number of shards. An error means that there will be no answer.
  virtual void Submit(Round round, std::vector<double> segment_sums,
                      std::function<void(absl::StatusOr<double>)> done) = 0;
};

// Among the buckets of one shard. Thread-safe. Its lock is a leaf; call Submit() without a lock
// held.
class RoundNorm {
 public:
  // Called once per bucket and round, from any thread.
  using Done = std::function<void(absl::StatusOr<double> total_square_sum)>;
  // Called before the buckets learn a total.
  using Note = std::function<void(Round round, double total_square_sum)>;

  // `note` may be null.
  RoundNorm(int num_buckets, std::shared_ptr<NormExchange> exchange, Note note);

  // The total of the round was known in a process that has ended: some of the buckets have used it,
  // and the others get it at once.
  void Restore(Round round, double total_square_sum);

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
  const Note note_;
  absl::Mutex mutex_;
  std::optional<std::pair<Round, double>> restored_ ABSL_GUARDED_BY(mutex_);
  std::map<Round, Collected> rounds_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::shard
