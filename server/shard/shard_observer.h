// This is what a shard tells about itself: events for the log and numbers for the status page.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/runtime/ids.h"
#include "server/sync/push_space.h"
#include "server/sync/worker_fault.h"

namespace lodestar::shard {

// Called without any lock held, from any thread; must not block.
class ShardObserver {
 public:
  virtual ~ShardObserver() = default;
  // The client has supplied the weights of every bucket.
  virtual void OnWeightsComplete() {}
  // A worker's part of a round is not here as it should be. Nothing of it is counted but what was
  // before; the coordinator decides what becomes of the worker.
  virtual void OnFault(const WorkerFault& /*fault*/) {}
  // All buckets of what a worker contributes to `round` are acknowledged, or about to be: counted,
  // or too late. Not where contributions are deferred (DefersContributions()).
  virtual void OnContributed(WorkerId /*worker*/, Incarnation /*incarnation*/, Round /*round*/) {}
  // The update of `round` has made weights or state of a bucket NaN or Inf. No caller gets these.
  virtual void OnDiverged(Round /*round*/, absl::string_view /*text*/) {}
  // There is no memory for an update, which was left out; what is there is still whole. Once.
  virtual void OnOutOfMemory(absl::string_view /*text*/) {}
  // This is for the log: the rounds go on without a worker, because it has left or was lost.
  virtual void OnDropped(absl::string_view /*text*/) {}
  // This is for the log: something out of the ordinary that does not stop the shard.
  virtual void OnNotice(absl::string_view /*text*/) {}
};

struct ShardStats {
  Version version;         // of the oldest bucket
  Version newest_version;  // of the newest bucket
  uint64_t weight_bytes = 0;
  uint64_t resident_bytes = 0;   // all pages: weights, state, accumulators, staging
  uint32_t pending_buckets = 0;  // with a round begun and not applied
  int64_t contributions_counted = 0;
  int64_t contributions_duplicate = 0;
  int64_t contributions_late = 0;
  int64_t contributions_rejected = 0;
  int64_t contributions_skipped = 0;          // of those counted: of steps without an update
  std::vector<uint64_t> staleness_histogram;  // [s]: counted with staleness s; last: that or more
  int64_t journal_bytes = 0;                  // since the newest checkpoint; 0 means no journal
  uint64_t journal_end = 0;                   // the last record that is durable; 0 means none
  std::string journal_trouble;                // why nothing can be acknowledged; empty: it can
  std::string journal_replica;                // where it is, and what it has; empty: there is none
  Round open_round;                           // of the oldest bucket
  std::vector<WorkerId> missing;              // whose contribution to it some bucket waits for
  std::string waiting_for;                    // empty: nothing
  PushSpace push_space;
};

}  // namespace lodestar::shard
