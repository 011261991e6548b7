// SPDX-License-Identifier: Apache-2.0

// ClusterPolicy decides for the coordinator when a round is over and which member gets work next.
// It has no state and does no I/O, like BucketPolicy, which decides for one bucket.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/runtime/ids.h"
#include "server/sync/decision.h"

namespace lodestar::sync {

// The progress of one member, as the coordinator knows it.
struct MemberProgress {
  WorkerId worker;
  std::string name;
  int64_t rounds_completed = 0;  // from its reports; a new member begins at the others' minimum
  bool waiting = false;          // true: it has asked for a grant and holds none
  bool working = false;          // true: it holds a grant that it has not reported
  // How long the member's recent rounds of training have taken, from the grant to the report. Not
  // set before the member has reported a round, or if the current round is of another kind.
  std::optional<absl::Duration> usual_round = std::nullopt;
  absl::Duration since = absl::ZeroDuration();  // time since the grant or, if waiting, the report
};

struct OpenRoundFacts {
  Round round;
  // Number of members of the round's roster that have reported, even if they were lost since.
  int reported = 0;
  absl::Span<const MemberProgress> missing;  // members of the roster: alive and not reported
};

// Minimum number of members before any member gets work.
struct RequiredMembers {
  int count = 1;
  absl::string_view flag = "min_workers";  // flag that sets the number
};

struct ClusterFacts {
  RequiredMembers required;
  absl::Span<const MemberProgress> members;  // alive, ascending by worker
  std::optional<OpenRoundFacts> open_round;  // the oldest open round
};

class ClusterPolicy {
 public:
  virtual ~ClusterPolicy() = default;

  // Decides whether this open round is over (kApply) or waits (kHold). The reason names the members
  // that it waits for.
  virtual Decision OnRoundEnd(const OpenRoundFacts& round) const = 0;
  // Decides whether another round may open (kApply) or must wait (kHold). The reason names the
  // members that it waits for.
  virtual Decision OnOpening(const ClusterFacts& cluster) const = 0;
  // Decides, when a round may open, whether this waiting member may be in its roster (kApply,
  // kHold).
  virtual Decision OnGrant(const MemberProgress& member, const ClusterFacts& cluster) const = 0;
  // Returns the maximum number of members that share a round.
  virtual int max_roster() const = 0;

  // Returns true if one round follows another, and each is opened on the shards with its roster. If
  // false, many rounds are open at a time. Each of them has one member, and the shards do not know
  // rounds.
  virtual bool uses_rosters() const = 0;
};

// Returns kHold while there are fewer members than required, else kApply.
Decision AwaitMembers(const ClusterFacts& cluster);

}  // namespace lodestar::sync
