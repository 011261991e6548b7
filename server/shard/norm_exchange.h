// SPDX-License-Identifier: Apache-2.0

// The classes here compute the norm of a gradient whose parts lie in several buckets, on several
// shards.
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

// A NormExchange adds up sums of squares among the shards.
class NormExchange {
 public:
  virtual ~NormExchange() = default;

  // Submits this shard's sums of squares of `round`, one per segment in the order of the parameter
  // space. (For segments see SegmentsOf() in common/params/shard_plan.h.) Calls `done` once, from
  // any thread, with the sum over all segments of all shards. The sum is added up in the order of
  // the segments, so that any number of shards gives the same bits. If `done` gets an error, this
  // round will have no sum.
  virtual void Submit(Round round, std::vector<double> segment_sums,
                      std::function<void(absl::StatusOr<double>)> done) = 0;
};

// A RoundNorm adds up sums of squares among the buckets of one shard. It is thread-safe. Its lock
// is a leaf, and Submit() must be called without a lock held.
class RoundNorm {
 public:
  // Function that gets the total of a round, or an error. It is called once per bucket and round,
  // from any thread.
  using Done = std::function<void(absl::StatusOr<double> total_square_sum)>;
  // Function that is called with a round's total before any Done function gets that total.
  using Note = std::function<void(Round round, double total_square_sum)>;

  // `note` may be null.
  RoundNorm(int num_buckets, std::shared_ptr<NormExchange> exchange, Note note);

  // Restores the total of `round` from the journal of an earlier process. Each later Submit() for
  // that round calls its `done` at once with this total.
  void Restore(Round round, double total_square_sum);

  // Submits the sums of one bucket. `bucket` counts from 0 within the shard. Calls every `done` of
  // the round once the last bucket has submitted and the other shards have answered.
  void Submit(Round round, int bucket, std::vector<double> segment_sums, Done done);

 private:
  struct Collected {
    int num_buckets = 0;
    std::vector<std::vector<double>> sums;  // indexed by bucket
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
