#include "server/coordinator/next_round.h"

#include <algorithm>

#include "server/coordinator/speed_balance.h"

namespace lodestar {
namespace {

// Null means that this is no site, or has no order.
const SiteOrder* OrderOf(const ClusterState& state) {
  return state.site.has_value() ? state.site->waiting() : nullptr;
}

}  // namespace

int MaxRosterOfNext(const ClusterState& state) {
  const SiteOrder* const order = OrderOf(state);
  return std::min(state.policy->max_roster(),
                  order != nullptr ? WorkLedger::max_roster_of(*order) : state.ledger.max_roster());
}

WorkLedger::Work OpenNextRound(ClusterState& state, const ClusterView& view,
                               absl::Span<const RosterMember> roster,
                               WorkLedger::Computes computes) {
  MemberSpeeds speeds;
  for (const RosterMember& member : roster) {
    speeds.roster.push_back(state.desks.at(member.worker).assignment.compute_speed());
  }
  for (const MemberProgress& member : view.members) {
    speeds.fastest =
        std::max(speeds.fastest, state.desks.at(member.worker).assignment.compute_speed());
  }
  if (state.policy->uses_rosters()) state.before_open_round = state.ledger.state();
  const ViewId view_id = state.membership.table().view();
  const Round min_round = state.committed_round();
  const SiteOrder* const order = OrderOf(state);
  if (order == nullptr) {
    return state.ledger.OpenRound(view_id, roster, min_round, computes, speeds);
  }
  WorkLedger::Work work = state.ledger.OpenOrdered(*order, view_id, roster, min_round, speeds);
  state.site->OnOpened(work.plan.round);
  return work;
}

RoundPlan PlanForShards(const WorkLedger::Work& work) {
  RoundPlan plan = work.plan;
  if (work.grants.front().kind == Grant::Kind::kEvaluate) plan.roster.clear();
  return plan;
}

}  // namespace lodestar
