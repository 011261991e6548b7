// SPDX-License-Identifier: Apache-2.0

// A ShardObserver is told what happens in a shard: events for the log and numbers for the status
// page.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/runtime/ids.h"
#include "server/sync/push_space.h"
#include "server/sync/worker_fault.h"

namespace lodestar::shard {

// All methods are called without any lock held, from any thread. They must not block.
class ShardObserver {
 public:
  virtual ~ShardObserver() = default;
  // Called when the client has supplied the weights of every bucket.
  virtual void OnWeightsComplete() {}
  // Called if a worker's contribution is bad or missing: see WorkerFault. The shard continues. The
  // coordinator decides what happens to the worker.
  virtual void OnFault(const sync::WorkerFault& /*fault*/) {}
  // Called when the shard has answered all buckets of a worker's contribution to `round`, or is
  // about to. Each answer says that the bucket was counted or came too late. Not called if the job
  // defers contributions: see DefersContributions().
  virtual void OnContributed(WorkerId /*worker*/, Incarnation /*incarnation*/, Round /*round*/) {}
  // Called when the update of `round` has made weights or state of a bucket NaN or Inf. No caller
  // gets these numbers.
  virtual void OnDiverged(Round /*round*/, absl::string_view /*text*/) {}
  // Called once, if there is no memory for an update and the update was left out. The weights stay
  // as they were.
  virtual void OnOutOfMemory(absl::string_view /*text*/) {}
  // Called for the log, if the rounds go on without a worker that has left or was lost.
  virtual void OnDropped(absl::string_view /*text*/) {}
  // Called for the log, if something unusual happened that does not stop the shard.
  virtual void OnNotice(absl::string_view /*text*/) {}
};

struct ShardStats {
  Version version;         // version of the oldest bucket
  Version newest_version;  // version of the newest bucket
  uint64_t weight_bytes = 0;
  uint64_t resident_bytes = 0;   // bytes of all pages: weights, state, accumulators, staging
  uint32_t pending_buckets = 0;  // number of buckets with a round that is begun and not applied
  int64_t contributions_counted = 0;
  int64_t contributions_duplicate = 0;
  int64_t contributions_late = 0;
  int64_t contributions_rejected = 0;
  int64_t contributions_skipped = 0;          // counted contributions of skipped steps
  std::vector<uint64_t> staleness_histogram;  // [s]: counted with staleness s (last: s or more)
  int64_t journal_bytes = 0;                  // bytes written since the newest checkpoint
  uint64_t journal_end = 0;                   // number of the last record on disk, or 0
  std::string journal_trouble;                // why nothing can be acknowledged; empty: it can
  std::string journal_replica;                // address and state of the replica; empty: none
  Round open_round;                           // round of the oldest bucket
  std::vector<WorkerId> missing;              // workers missing from open_round in some bucket
  std::string waiting_for;                    // what the round waits for; empty: nothing
  sync::PushSpace push_space;
};

}  // namespace lodestar::shard
