// What a shard knows about the lives of workers, from the coordinator's Members and Drop commands.
// Pure data; the shard serializes calls. Grows with the number of workers ever seen, not with
// pushes.
#pragma once

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "server/sync/round_plan.h"

namespace lodestar {

enum class Standing : uint8_t {
  kUnknown,  // not announced: perhaps the announcement is still on its way
  kMember,
  kGone,  // this life is over: lease expired, left, or replaced by a newer one
};

class MemberDirectory {
 public:
  // Replaces the members. A view older than the last one is ignored.
  void SetMembers(ViewId view, absl::Span<const RosterMember> members);
  // Ends this and every earlier life of the worker.
  void Drop(WorkerId worker, Incarnation incarnation);
  // As after construction.
  void Clear();

  Standing StandingOf(WorkerId worker, Incarnation incarnation) const;
  ViewId view() const { return view_; }

 private:
  ViewId view_;
  absl::flat_hash_map<WorkerId, Incarnation> members_;
  absl::flat_hash_map<WorkerId, Incarnation> last_ended_;
};

}  // namespace lodestar
