// The coordinator's side of gradient clipping: collects every shard's sums of squares of a round
// and gives each of them the total.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"
#include "server/shard/norm_exchange.h"

namespace lodestar {

// Thread-safe. Memory: one vector of sums per shard for each open round, and the totals of the last
// few rounds, which answer repeats of a shard whose connection broke before it had its answer.
class NormCollector {
 public:
  using DoneCallback = std::function<void(absl::StatusOr<double>)>;

  explicit NormCollector(int num_shards) : num_shards_(num_shards) {}
  ~NormCollector();

  // `done` is called once all shards have submitted `round`, without a lock held. The total is the
  // plain left-to-right sum over the segments of shard 0, then those of shard 1, and so on. A
  // second submission of a shard replaces the first, whose callback gets Aborted.
  void Submit(Round round, int shard, std::vector<double> segment_sums, DoneCallback done)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Answers all that wait with `status` and forgets every round: the shards start anew.
  void Reset(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  // As Reset(), and every later submission gets `status` at once.
  void Close(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Submission {
    std::vector<double> sums;
    DoneCallback done;
  };
  using OpenRound = std::map<int, Submission>;  // by shard

  const int num_shards_;
  absl::Mutex mutex_;
  std::map<Round, OpenRound> open_ ABSL_GUARDED_BY(mutex_);
  std::map<Round, double> totals_ ABSL_GUARDED_BY(mutex_);
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);  // OK: open
};

// The NormExchange of one shard whose collector is in the same process.
class LocalNormExchange : public NormExchange {
 public:
  LocalNormExchange(NormCollector* collector, int shard) : collector_(collector), shard_(shard) {}
  void Submit(Round round, std::vector<double> segment_sums,
              std::function<void(absl::StatusOr<double>)> done) override {
    collector_->Submit(round, shard_, std::move(segment_sums), std::move(done));
  }

 private:
  NormCollector* const collector_;
  const int shard_;
};

}  // namespace lodestar
