// The next round of a job: what its settings ask for, or, if it is a site, what it was ordered to
// do.
#pragma once

#include "absl/types/span.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/work_ledger.h"
#include "server/sync/round_plan.h"

namespace lodestar {

// Returns how many members may share the next round at most.
int MaxRosterOfNext(const ClusterState& state);

// Opens the next round in the ledger, for members of `view`. Requires has_next_round(), and a
// roster of one to as many as may share it.
WorkLedger::Work OpenNextRound(ClusterState& state, const ClusterView& view,
                               absl::Span<const RosterMember> roster,
                               WorkLedger::Computes computes);

// Returns what shards are told of a round. An evaluation that has a number among those of training
// is a round that no member contributes to.
RoundPlan PlanForShards(const WorkLedger::Work& work);

}  // namespace lodestar
