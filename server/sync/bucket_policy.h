// BucketPolicy decides for one bucket when a contribution takes effect and when weights may be
// read. It holds no lock, thread, clock, proto or tensor and keeps no state of its own: facts in,
// decision out; same facts, same answer. So one policy object serves all buckets and threads.
//
// What the cluster as a whole does next is for ClusterPolicy.
#pragma once

#include <optional>

#include "absl/types/span.h"
#include "common/runtime/ids.h"
#include "server/sync/decision.h"
#include "server/sync/member_directory.h"
#include "server/sync/round_plan.h"

namespace lodestar {

// The last contribution of a worker that a bucket counted: one row of its dedup table.
struct CountedContribution {
  Incarnation incarnation;
  Round round;
  friend bool operator==(const CountedContribution&, const CountedContribution&) = default;
};

// The bucket as pushes, pulls and changes of the roster meet it. Where rounds have no rosters only
// `version` means anything.
struct BucketFacts {
  Version version;  // updates applied
  Round round;      // that it collects; of pushes during an update: that it collects after it
  bool is_updating = false;         // the round before is decided and its update under way
  Round newest_opened{-1};          // by the coordinator, on this shard
  Round over_before{-1};            // all that is reported of earlier rounds has been counted
  bool is_due = true;               // `round` exchanges this bucket: see FragmentPlan
  const RoundPlan* plan = nullptr;  // of `round`; null until the coordinator opens it
  absl::Span<const WorkerId> live;  // of the plan's roster, without those dropped; ascending
  absl::Span<const WorkerId>
      contributed;  // counted in this round, also if dropped since; ascending
};

// A contribution to one bucket, whole or about to arrive.
struct PushFacts {
  WorkerId worker;
  Incarnation incarnation;
  Round round;
  Version base_version;
  Standing standing = Standing::kUnknown;           // MemberDirectory::StandingOf
  std::optional<CountedContribution> last_counted;  // of this worker, in this bucket
  bool is_due = true;                               // the round exchanges this bucket
  int64_t num_samples = 0;                          // see RoundPlan::WeightOf
};

struct PullFacts {
  WorkerId worker;
  Incarnation incarnation;
  Round min_round;  // whose rounds before must be over in the weights
  Standing standing = Standing::kUnknown;
};

class BucketPolicy {
 public:
  virtual ~BucketPolicy() = default;

  // kApply, kApplyAlone, kAccumulate: counted, and the shard's tables then say so. kHold: ask again
  // after every change of the bucket, for all that are held in ascending order of round and worker.
  // kReject, kDrop: release it.
  //
  // Alike in every policy: a repeat of what was counted is a duplicate, from any sender, for it
  // may be the retry of the last push before its worker left; a life that is over is Aborted; one
  // that is not announced yet is held.
  Decision OnPush(const PushFacts& push, const BucketFacts& bucket) const;

  // kApply: answer with the bucket's weights. kHold. kReject: the life is over.
  Decision OnPull(const PullFacts& pull, const BucketFacts& bucket) const;

  // After a round was opened or a member dropped. kApply: update with what has been accumulated.
  // kDrop: the next round begins without an update, because nothing came and no member is left, or
  // no member contributes to this bucket in this round, which then needs no reason. kHold: goes on
  // collecting; the reason names the members that it waits for, if it waits for some in particular.
  virtual Decision OnRosterChange(const BucketFacts& bucket) const = 0;

  // The contributions of a round are summed to one update, as its plan says; else each is an update
  // of its own, and there are no plans.
  virtual bool uses_rosters() const = 0;
  // Where each is an update of its own: how many of them, one after the other, make one step of the
  // optimizer, of which each is a part; see DelayedStep. `num_members` >= 0 are there now. None:
  // each makes a step.
  virtual std::optional<int> PartsOfStep(int num_members) const = 0;
  // A held contribution waits for those of lower worker ids, so that sums have one order. Not one
  // on fewer samples than its worker was granted: that worker is about to go, and no other run has
  // that sum.
  virtual bool fixed_order() const = 0;

 private:
  // The push is of a member, and was not counted before.
  virtual Decision OnNewPush(const PushFacts& push, const BucketFacts& bucket) const = 0;
  // By a life that is not over.
  virtual Decision OnLivePull(const PullFacts& pull, const BucketFacts& bucket) const = 0;
};

}  // namespace lodestar
