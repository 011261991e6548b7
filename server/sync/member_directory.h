// What a shard knows about the lives of workers, from the coordinator's Members and Drop commands.
// Pure data; the shard serializes calls. Of lives that have ended, those of the kMaxEnded newest
// incarnations are remembered: a push of an older one waits, as if its life were still to be
// announced, until its client gives up.
#pragma once

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "common/runtime/ids.h"
#include "server/sync/round_plan.h"

namespace lodestar {

enum class Standing : uint8_t {
  kUnknown,  // not announced: perhaps the announcement is still on its way
  kMember,
  kGone,  // this life is over: lease expired, left, or replaced by a newer one
};

class MemberDirectory {
 public:
  static constexpr int kMaxEnded = 1 << 12;

  MemberDirectory() = default;
  // Lives up to this incarnation have ended: they began with servers before these.
  explicit MemberDirectory(Incarnation last_of_others) : last_of_others_(last_of_others) {}

  // Replaces the members. A view older than the last one is ignored.
  void SetMembers(ViewId view, absl::Span<const RosterMember> members);
  // Ends this and every earlier life of the worker.
  void Drop(WorkerId worker, Incarnation incarnation);

  Standing StandingOf(WorkerId worker, Incarnation incarnation) const;
  ViewId view() const { return view_; }
  int num_members() const { return static_cast<int>(members_.size()); }

 private:
  Incarnation last_of_others_;
  ViewId view_;
  absl::flat_hash_map<WorkerId, Incarnation> members_;
  absl::flat_hash_map<WorkerId, Incarnation> last_ended_;
};

}  // namespace lodestar
