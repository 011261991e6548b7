// Finds the workers that hold up the others. Such a worker is a member that owes a report, or that
// could ask for work and does not, or whose push has space on a server and is not whole. It may
// also be the worker that is to supply the first weights. Pure.
#pragma once

#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/member_pushes.h"

namespace lodestar {

struct Hold {
  WorkerId worker;
  bool owes_weights = false;  // the first ones of the job
  // The round whose report the worker owes. Not set means that it does not ask for work.
  std::optional<Round> round = {};
  std::optional<absl::Duration> usually = {};  // that it takes for such a round
  // The push that the worker does not finish, which is what others wait for.
  std::optional<MemberPushes::Unfinished> push = {};
  // Whether the time of `push` is that of the space kept for all that the member pushes, and not
  // that of this push.
  bool keeps_space = false;
  bool is_abandoned = false;  // nothing has come of `push` for a lease
  absl::Time since;
  // When the worker is dropped, whatever its heartbeats say: see RoundPatience. It is never dropped
  // if no other waits for it, as for a lone worker, because a drop would serve no other.
  absl::Time until;

  // Whether its time is over. How far a push is, is known as of its server's last sign of life.
  bool IsOver(absl::Time now) const {
    return now >= until && (!push.has_value() || push->told_at >= until);
  }
};

// Returns the holds, ascending by worker. Empty while servers are away, or not ready. A member that
// has pushed, as its heartbeats say, may only wait for those before it in the order of summation:
// its time begins when they are done. A member whose push a server holds, because others have not
// finished theirs, is not waited for: its time begins when the server has space for it. A push that
// is not whole has to get on, whichever others are slow. If a member has several, the one that has
// the least time left is told. If no member gets on, as when it is a server that cannot be reached,
// that is no reason to drop one.
std::vector<Hold> RoundHolds(const ClusterState& state, absl::Time now);

// Whether there is a member that could go on if others were done: one that has asked for work, or
// pushes and is held, or waits behind others in the order of summation.
bool IsAnyoneWaiting(const ClusterState& state);

// Returns the member that is the only one to hold up the others, if there is one.
std::optional<WorkerId> OnlyHolder(const ClusterState& state, absl::Time now);

// Returns how long others have waited for the round that this worker holds: from when it had the
// round and another member was done, until `now`. Zero if it holds no open round, or no other
// waits.
absl::Duration WaitedFor(const ClusterState& state, WorkerId worker, absl::Time now);

// Returns until when the job, which is over, waits for this life with a round at hand.
absl::Time HandInBy(const ClusterState& state, const WorkerDesk& desk);

}  // namespace lodestar
