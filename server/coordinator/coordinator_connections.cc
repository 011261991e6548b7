// What a coordinator concludes from connections and processes of workers that have ended.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/coordinator/coordinator.h"

namespace lodestar {
namespace {

// How long a worker has for another connection: this, and so many round trips, and, where rounds
// are long, such a share of one.
constexpr absl::Duration kLeastPatience = absl::Seconds(1);
constexpr int kRoundTrips = 4;
constexpr double kShareOfRound = 0.05;

}  // namespace

std::optional<std::string> Coordinator::PeerOfHolder(const RegisterCall& call) const {
  const WorkerRecord* record = state_.membership.FindByName(call.name);
  if (record == nullptr || !record->is_alive() || record->instance_id == call.instance_id) {
    return std::nullopt;
  }
  const std::string& peer = state_.desks.at(record->id).connection.peer();
  if (peer.empty()) return std::nullopt;
  return peer;
}

void Coordinator::NoteConnection(const WorkerLife& life, const std::string& peer) {
  if (!CheckLife(life).ok()) return;
  state_.desks[life.worker].connection.OnHeardFrom(peer);
  closed_connections_.OnHeard(life, peer);
}

bool Coordinator::IsLastMember(WorkerId worker) const {
  const std::vector<const WorkerRecord*> members = state_.membership.Members();
  return members.size() == 1 && members.front()->id == worker;
}

void Coordinator::OnProcessEnded(const WorkerLife& life, absl::Time now) {
  if (state_.is_comparing() || !CheckLife(life).ok() || IsLastMember(life.worker)) return;
  DropWorker(life.worker, "its process has ended", now);
}

void Coordinator::OnConnectionEnded(const WorkerLife& life, const std::string& peer, bool by_peer,
                                    absl::Time now) {
  if (state_.is_comparing() || !CheckLife(life).ok()) return;
  closed_connections_.OnEnded(life, peer, by_peer, now);
}

void Coordinator::On(int shard, const ShardConnections& connections, absl::Time now) {
  if (!state_.shards.Has(shard)) return;
  closed_connections_.OnAnswer(shard, connections.life, connections.are_closed);
  EndUnconnected(now);
}

absl::Duration Coordinator::PatienceWithoutConnection(WorkerId worker) const {
  absl::Duration patience =
      std::max(kLeastPatience, kRoundTrips * state_.desks.at(worker).connection.path().round_trip);
  if (HasLocalSteps(state_.config.job)) {
    patience = std::max(patience, kShareOfRound * state_.progress.usual_round());
  }
  return patience;
}

void Coordinator::EndUnconnected(absl::Time now) {
  if (!state_.config.ends_unconnected || state_.is_comparing() || closed_connections_.is_empty()) {
    return;
  }
  const std::optional<WorkerId> awaited =
      state_.stragglers.OnlyStalled(state_.FactsOfStragglers(now), now);
  if (!awaited.has_value() || IsLastMember(*awaited)) return;
  const WorkerLife life = {*awaited, state_.membership.Find(*awaited)->incarnation};
  switch (closed_connections_.Judge(life, PatienceWithoutConnection(*awaited), now)) {
    case ClosedConnections::Verdict::kWait:
      return;
    case ClosedConnections::Verdict::kAsk:
      return Command(AskConnectionsCommand{life});
    case ClosedConnections::Verdict::kEnd: {
      const absl::Duration closed_for =
          absl::Trunc(closed_connections_.ClosedFor(life, now), absl::Milliseconds(100));
      return DropWorker(*awaited,
                        absl::StrCat("its connections were closed and none came again for ",
                                     absl::FormatDuration(closed_for)),
                        now);
    }
  }
}

}  // namespace lodestar
