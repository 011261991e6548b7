// SPDX-License-Identifier: Apache-2.0

// DirectionWatch compares the directions of the contributions to a shard. It finds two kinds of
// workers:
// - A worker is opposed if it goes against the other workers.
// - A worker is unrelated if it has nothing in common with the others, although they agree.
//
// For each worker and round, the class computes the cosine between two vectors: the worker's
// contribution, and the sum of the other contributions. It uses only sampled elements. A single
// gradient is mostly noise, so one cosine says almost nothing. Therefore each worker has a
// statistic over its last kWindow rounds:
//
//   statistic = (sum of the cosines) / sqrt(sum of the squares of the cosines)
//
// If cosines were random and as often below 0 as above, the statistic would be a standard normal
// value. (It is Student's t-statistic, self-normalised.) Over n rounds its magnitude is at most
// sqrt(n). So no worker is found to be opposed before round 26.
//
// If workers have unlike data and the run is near its end, the gradients of all workers cancel out.
// Then each worker opposes the others. So a worker is found only if most of the other workers
// agree.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/runtime/ids.h"
#include "server/shard/contribution_samples.h"

namespace lodestar::shard {

// The class is thread-safe. Its lock is a leaf.
class DirectionWatch {
 public:
  // Number of elements that are sampled of one worker's contribution, over all buckets together.
  // With n elements, the error of a cosine is about 1 / sqrt(n) = 1/128.
  static constexpr int64_t kSampledElements = 1 << 14;
  static constexpr int kWindow = 100;
  static constexpr double kOpposed = -5.0;
  // A worker is unrelated to the others if its statistic over kWindow rounds is at most this value.
  static constexpr double kUnrelated = 2.0;
  // A worker is found to oppose the others only if most of the others have statistics of at least
  // this value.
  static constexpr double kAgree = 5.0;
  // A worker is found unrelated to the others only if most of the others have statistics of at
  // least this value.
  static constexpr double kAgreeWell = 8.0;
  // Maximum number of workers to remember. If there are more, workers without a contribution to the
  // last round are forgotten.
  static constexpr size_t kMaxWorkers = 4096;

  explicit DirectionWatch(int num_buckets) : num_buckets_(num_buckets) {}

  // Returns the size of the sample of the bucket at `position`, which counts from 0. 0 means that
  // the bucket is not sampled.
  int64_t SampledElements(int position) const {
    constexpr int kMost = kSampledElements / ContributionSamples::kSampledBlock;  // buckets
    const int stride = (num_buckets_ + kMost - 1) / kMost;
    return position % stride == 0 ? kSampledElements / std::min(num_buckets_, kMost) : 0;
  }

  struct Finding {
    WorkerId worker;
    Incarnation incarnation;
    Round round;
    bool is_opposed = false;     // false: the worker is unrelated to the others
    double cosine = 0.0;         // mean cosine of the worker's last rounds
    double others_cosine = 0.0;  // median of this mean over the other workers
  };
  // Adds the parts of one bucket to the round. Must be called once per bucket and round. The call
  // for the last bucket of the round returns the findings. All other calls return nothing.
  std::vector<Finding> OnRound(Round round, absl::Span<const DirectionPart> parts);

  // Returns the number of rounds that have ended in some buckets only.
  size_t num_open_rounds() const {
    absl::MutexLock lock(&mutex_);
    return open_.size();
  }

 private:
  static constexpr size_t kMaxOpenRounds = 16;  // if there are more, the oldest is given up

  struct OpenRound {
    int num_buckets = 0;
    std::map<WorkerId, DirectionPart> sums;
  };
  class History {
   public:
    void Add(double cosine);
    int num_rounds() const { return static_cast<int>(cosines_.size()); }
    double Statistic() const;
    double Mean() const;

   private:
    std::deque<double> cosines_;
  };

  const int num_buckets_;
  mutable absl::Mutex mutex_;
  std::map<Round, OpenRound> open_ ABSL_GUARDED_BY(mutex_);
  std::map<WorkerId, History> histories_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::shard
