// SPDX-License-Identifier: Apache-2.0

// DirectionWatch compares the directions of the contributions to a shard. It finds a worker that
// opposes the other workers, or that has nothing in common with them while they agree with one
// another.
//
// For each worker and round it computes a cosine: that of the worker's contribution with the sum of
// the other contributions, over the samples of all buckets. Single gradients are mostly noise, so
// that one round says almost nothing. Therefore the cosines of kWindow rounds are added up and
// divided by the root of the sum of their squares. This is the worker's statistic. If the cosines
// were as often below 0 as above, the statistic would be a standard normal value, whatever their
// size (the t-statistic of Student, self-normalised). Its magnitude is at most the root of the
// number of rounds, so that no worker is found before round 26.
//
// If workers have unlike data and the run is near its end, the gradients of all workers cancel out,
// and each worker opposes the others. So no worker is found unless most of the other workers agree.
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
  // Number of sampled elements of one worker, over all buckets together. It gives the cosine with
  // an error of about 1/128.
  static constexpr int64_t kSampledElements = 1 << 14;
  static constexpr int kWindow = 100;
  static constexpr double kOpposed = -5.0;
  // A worker whose statistic is below this value is unrelated to the others, once its window is
  // full.
  static constexpr double kUnrelated = 2.0;
  // A worker is found to oppose the others only if the statistics of most others are above this
  // value.
  static constexpr double kAgree = 5.0;
  // A worker is found unrelated to the others only if the statistics of most others are above this
  // value.
  static constexpr double kAgreeWell = 8.0;
  // Maximum number of workers to remember. If there are more, workers that are gone are forgotten.
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
