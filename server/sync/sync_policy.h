// SyncPolicy decides when a contribution takes effect, when weights may be read, and when a worker
// may go on. It holds no lock, thread, clock, proto or tensor and keeps no state of its own: facts
// in, decision out; same facts, same answer. So one policy object serves all buckets and threads.
//
// A shard asks per bucket (OnPush, OnPull, OnRosterChange); the coordinator asks for the cluster
// (OnRoundEnd, OnOpening, OnGrant).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/ids.h"
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

// One bucket. In policies that use rosters `version` is also the round the bucket collects.
struct BucketFacts {
  Version version;                  // updates applied
  const RoundPlan* plan = nullptr;  // of round `version`; null until the coordinator opens it
  absl::Span<const WorkerId> live;  // of the plan's roster, without those dropped; ascending
  absl::Span<const WorkerId>
      contributed;  // counted in this round, also if dropped since; ascending
};

// A whole contribution to one bucket whose checksums hold.
struct PushFacts {
  WorkerId worker;
  Incarnation incarnation;
  Round round;
  Version base_version;
  bool is_pseudo_gradient = false;
  Standing standing = Standing::kUnknown;           // MemberDirectory::StandingOf
  std::optional<CountedContribution> last_counted;  // of this worker, in this bucket
};

struct PullFacts {
  WorkerId worker;
  Incarnation incarnation;
  Version min_version;
  Standing standing = Standing::kUnknown;
};

// One member as the coordinator sees it.
struct MemberProgress {
  WorkerId worker;
  std::string name;
  int64_t rounds_completed = 0;  // by its reports; a newcomer starts at the minimum of the others
  bool waiting = false;          // has asked for a grant and holds none
  bool working = false;          // holds a grant that it has not reported
};

struct OpenRoundFacts {
  Round round;
  int reported = 0;                          // by members of its roster, also if lost since
  absl::Span<const MemberProgress> missing;  // of its roster: alive and not reported
};

// How many members there must be before anybody gets work.
struct RequiredMembers {
  int count = 1;
  absl::string_view flag = "min_workers";  // that says so
};

struct ClusterFacts {
  RequiredMembers required;
  absl::Span<const MemberProgress> members;  // alive, ascending by worker
  std::optional<OpenRoundFacts> open_round;
};

class SyncPolicy {
 public:
  virtual ~SyncPolicy() = default;

  // kApply, kAccumulate: counted (the shard then updates contributed and the dedup table), with or
  // without the update following. kHold: keep it staged. kReject, kDrop: release it. Ask again for
  // each held push, ascending by worker, after every change of the bucket.
  virtual Decision OnPush(const PushFacts& push, const BucketFacts& bucket) const = 0;

  // kApply: answer with the bucket's weights. kHold, kReject.
  virtual Decision OnPull(const PullFacts& pull, const BucketFacts& bucket) const = 0;

  // After a round was opened or a member dropped. kApply: run the optimizer on what has been
  // accumulated. kDrop: nothing came and nobody is left: next version without an update. kHold:
  // goes on collecting; whom it waits for.
  virtual Decision OnRosterChange(const BucketFacts& bucket) const = 0;

  // Whether the open round is over (kApply) or whom it waits for (kHold).
  virtual Decision OnRoundEnd(const ClusterFacts& cluster) const = 0;
  // Whether the next round may open with all that wait as its roster; only with uses_rosters().
  virtual Decision OnOpening(const ClusterFacts& cluster) const = 0;
  // Whether this waiting member may get a grant of its own; only without uses_rosters().
  virtual Decision OnGrant(const MemberProgress& member, const ClusterFacts& cluster) const = 0;

  // Rounds have a roster and are opened on the shards; version == round.
  virtual bool uses_rosters() const = 0;
  // A held contribution waits for those of lower worker ids, so that sums have one order.
  virtual bool fixed_order() const = 0;
  // The norm of the averaged gradient is clipped on the servers if the job's clip_norm > 0.
  virtual bool clips_on_server() const = 0;
  // Contributions are weight changes for the outer optimizer instead of gradients.
  virtual bool takes_pseudo_gradients() const = 0;
};

}  // namespace lodestar
