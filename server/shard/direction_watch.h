// DirectionWatch looks at the directions of the contributions to a shard. It finds a worker that
// opposes the others, or that has nothing in common with them while they agree with one another.
//
// What is looked at is the cosine between a worker's contribution and the sum of the others' of the
// same round, over the sample of all buckets. Single gradients are mostly noise, so that one round
// says next to nothing. Therefore the cosines of kWindow rounds are added up, and divided by the
// root of the sum of their squares. If they were as often below 0 as above, that would be a
// standard normal value, whatever their size (the t-statistic of Student, self-normalised). Its
// magnitude is at most the root of the number of rounds, so that no worker is found before the
// 26th.
//
// Where workers have unlike data and the run is near its end, the gradients of all cancel out, and
// each worker opposes the others. So no worker is found unless most of the others agree.
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

// Thread-safe. Its lock is a leaf.
class DirectionWatch {
 public:
  // The sample of one worker has so many elements, over all buckets together. That is enough for a
  // cosine to a 128th.
  static constexpr int64_t kSampledElements = 1 << 14;
  static constexpr int kWindow = 100;
  static constexpr double kOpposed = -5.0;
  static constexpr double kUnrelated = 2.0;  // below that, once the window is full
  // Most of the others must be above that, or no worker is taken to oppose them.
  static constexpr double kAgree = 5.0;
  // Most of the others must be above that, or no worker is taken for unrelated to them.
  static constexpr double kAgreeWell = 8.0;
  // If there are more workers than that, those that are gone are forgotten.
  static constexpr size_t kMaxWorkers = 4096;

  explicit DirectionWatch(int num_buckets) : num_buckets_(num_buckets) {}

  // Returns the size of the sample of a bucket, whose `position` counts from 0. 0 means that the
  // bucket is not looked at.
  int64_t SampledElements(int position) const {
    constexpr int kMost = kSampledElements / ContributionSamples::kSampledBlock;  // buckets
    const int stride = (num_buckets_ + kMost - 1) / kMost;
    return position % stride == 0 ? kSampledElements / std::min(num_buckets_, kMost) : 0;
  }

  struct Finding {
    WorkerId worker;
    Incarnation incarnation;
    Round round;
    bool is_opposed = false;     // else unrelated
    double cosine = 0.0;         // the mean of its last rounds
    double others_cosine = 0.0;  // the same of the one in the middle of the others
  };
  // Is called once per bucket and round. Returns what the round shows, once its last bucket has
  // come.
  std::vector<Finding> OnRound(Round round, absl::Span<const DirectionPart> parts);

  // Returns the number of rounds that some buckets have not ended.
  size_t num_open_rounds() const {
    absl::MutexLock lock(&mutex_);
    return open_.size();
  }

 private:
  static constexpr size_t kMaxOpenRounds = 16;  // the oldest are given up

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
