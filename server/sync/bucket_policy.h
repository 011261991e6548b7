// SPDX-License-Identifier: Apache-2.0

// BucketPolicy decides for one bucket when a contribution takes effect and when weights may be
// read. It has no lock, thread, clock, proto or tensor, and no state: facts go in, a decision comes
// out, and the same facts give the same decision. So one policy object serves all buckets and
// threads.
//
// What the cluster as a whole does next is decided by ClusterPolicy.
#pragma once

#include <optional>

#include "absl/types/span.h"
#include "common/runtime/ids.h"
#include "server/sync/decision.h"
#include "server/sync/member_directory.h"
#include "server/sync/round_plan.h"

namespace lodestar::sync {

// The last contribution of a worker that a bucket counted. It is one row of the bucket's dedup
// table.
struct CountedContribution {
  Incarnation incarnation;
  Round round;
  friend bool operator==(const CountedContribution&, const CountedContribution&) = default;
};

// The state of the bucket that decisions about pushes, pulls and the roster depend on. If rounds
// have no rosters, only `version` has a meaning.
struct BucketFacts {
  Version version;  // number of updates applied
  // Round whose contributions the bucket collects. If the facts are for a push and an update runs,
  // this is the round after the updated one.
  Round round;
  bool is_updating = false;         // the round before is decided, and its update is under way
  Round newest_opened{-1};          // newest round that the coordinator has opened on this shard
  Round over_before{-1};            // all reported contributions to rounds before this one count
  bool is_due = true;               // true: `round` exchanges this bucket; see FragmentPlan
  const RoundPlan* plan = nullptr;  // plan of `round`; null until the coordinator opens the round
  absl::Span<const WorkerId> live;  // the plan's roster without dropped workers; ascending
  absl::Span<const WorkerId>
      contributed;  // workers counted in this round, even if dropped since; ascending
};

// A contribution to one bucket, complete or about to arrive.
struct PushFacts {
  WorkerId worker;
  Incarnation incarnation;
  Round round;
  Version base_version;
  Standing standing = Standing::kUnknown;           // MemberDirectory::StandingOf
  std::optional<CountedContribution> last_counted;  // the worker's newest counted contribution
  bool is_due = true;                               // true: the round exchanges this bucket
  int64_t num_samples = 0;                          // see RoundPlan::WeightOf
};

struct PullFacts {
  WorkerId worker;
  Incarnation incarnation;
  Round min_round;  // the weights must include all rounds before this one
  Standing standing = Standing::kUnknown;
};

class BucketPolicy {
 public:
  virtual ~BucketPolicy() = default;

  // Decides about a push:
  //   kApply, kApplyAlone, kAccumulate  The push counts. The shard then records it as counted.
  //   kHold                             The shard asks again after every change of the bucket, for
  //                                     all held pushes in ascending order of round and worker.
  //   kReject, kDrop                    The push does not count.
  //
  // These rules hold in every policy, in this order:
  // - A push older than the worker's last counted incarnation is Aborted.
  // - A repeat of a counted contribution is a duplicate, even if its worker has left since.
  // - A push of an incarnation that is over is Aborted.
  // - A push of an incarnation that is not announced yet is held.
  Decision OnPush(const PushFacts& push, const BucketFacts& bucket) const;

  // Decides about a pull. kApply means that it is answered with the bucket's weights. kHold means
  // that it waits. kReject means that the incarnation is over.
  Decision OnPull(const PullFacts& pull, const BucketFacts& bucket) const;

  // Decides after a round was opened or a member was dropped:
  //   kApply  The bucket is updated with the contributions that have been added up.
  //   kDrop   The next round begins without an update. Either this round does not use the bucket
  //           (the reason is empty), or all its members were lost before they contributed.
  //   kHold   The bucket continues to collect. The reason names the members that it waits for, if
  //           they are known.
  virtual Decision OnRosterChange(const BucketFacts& bucket) const = 0;

  // Returns true if the contributions of a round are summed to one update, as the round's plan
  // says. If false, each contribution is an update of its own, and there are no plans.
  virtual bool uses_rosters() const = 0;
  // If each contribution is an update of its own, returns how many of them make one step of the
  // optimizer: see DelayedStep. Not set means that each makes a step. `num_members` >= 0 is the
  // present number of members.
  virtual std::optional<int> PartsOfStep(int num_members) const = 0;
  // Returns true if contributions are summed in ascending order of worker ids. Then a held
  // contribution waits for all contributions of lower ids. A contribution on fewer samples than
  // granted does not wait, because its worker may leave before the others have pushed.
  virtual bool fixed_order() const = 0;

 private:
  // Decides about a push of a member that was not counted before.
  virtual Decision OnNewPush(const PushFacts& push, const BucketFacts& bucket) const = 0;
  // Decides about a pull of an incarnation that is not over.
  virtual Decision OnLivePull(const PullFacts& pull, const BucketFacts& bucket) const = 0;
};

}  // namespace lodestar::sync
