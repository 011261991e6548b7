// ClusterPolicy decides for the coordinator when a round is over and who gets work next. Pure and
// without state, as BucketPolicy is, which decides for one bucket.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/runtime/ids.h"
#include "server/sync/decision.h"

namespace lodestar {

// One member as the coordinator sees it.
struct MemberProgress {
  WorkerId worker;
  std::string name;
  int64_t rounds_completed = 0;  // by its reports; a newcomer starts at the minimum of the others
  bool waiting = false;          // has asked for a grant and holds none
  bool working = false;          // holds a grant that it has not reported
  // How long its rounds of training take of late, from the grant to the report; none before it has
  // reported one, or if this one is of another kind.
  std::optional<absl::Duration> usual_round = std::nullopt;
  absl::Duration since = absl::ZeroDuration();  // working: the grant; waiting: its last report
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
  std::optional<OpenRoundFacts> open_round;  // the oldest
};

class ClusterPolicy {
 public:
  virtual ~ClusterPolicy() = default;

  // Whether this open round is over (kApply) or whom it waits for (kHold).
  virtual Decision OnRoundEnd(const OpenRoundFacts& round) const = 0;
  // Whether another round may open (kApply) or whom that waits for (kHold).
  virtual Decision OnOpening(const ClusterFacts& cluster) const = 0;
  // Once it may: whether this member, which waits, may be in its roster (kApply, kHold).
  virtual Decision OnGrant(const MemberProgress& member, const ClusterFacts& cluster) const = 0;
  // How many may share a round.
  virtual int max_roster() const = 0;

  // Rounds follow each other, and each is opened on the shards with its roster; else every member
  // has rounds of its own, many at a time, of which the shards know nothing.
  virtual bool uses_rosters() const = 0;
};

// kHold while there are fewer members than required; else kApply.
Decision AwaitMembers(const ClusterFacts& cluster);

}  // namespace lodestar
