// SPDX-License-Identifier: Apache-2.0

// What a coordinator does when connections or processes of workers have ended.
#include <optional>

#include "absl/strings/str_cat.h"
#include "server/coordinator/coordinator.h"

namespace lodestar::coordinator {

void Coordinator::OnProcessEnded(const messages::WorkerLife& life, absl::Time now) {
  if (state_.is_comparing() || !CheckLife(life).ok()) return;
  if (state_.membership.IsLastMember(life.worker)) return;
  DropWorker(life.worker, "its process has ended", now);
}

void Coordinator::OnConnectionEnded(const messages::WorkerLife& life, const std::string& peer,
                                    bool by_peer, absl::Time now) {
  if (!state_.is_comparing()) state_.membership.OnConnectionEnded(life, peer, by_peer, now);
}

void Coordinator::OnConnections(int shard, const shards::ShardConnections& connections,
                                absl::Time now) {
  if (!state_.shards.Has(shard)) return;
  state_.membership.OnConnectionsAnswer(shard, connections.life, connections.are_closed);
  EndUnconnected(now);
}

void Coordinator::EndUnconnected(absl::Time now) {
  if (!state_.config.ends_unconnected || state_.is_comparing() ||
      !state_.membership.has_closed_connections()) {
    return;
  }
  const std::optional<WorkerId> awaited =
      state_.stragglers.OnlyStalled(state_.FactsOfStragglers(now), now);
  if (!awaited.has_value()) return;
  const absl::Duration long_round = job::HasLocalSteps(state_.model.job())
                                        ? state_.rounds.progress().usual_round()
                                        : absl::ZeroDuration();
  const membership::Membership::Unconnected judged =
      state_.membership.JudgeUnconnected(*awaited, long_round, now);
  switch (judged.verdict) {
    case membership::ClosedConnections::Verdict::kWait:
      return;
    case membership::ClosedConnections::Verdict::kAsk:
      return Command(shards::AskConnectionsCommand{judged.life});
    case membership::ClosedConnections::Verdict::kEnd:
      return DropWorker(
          *awaited,
          absl::StrCat(
              "its connections were closed and it did not connect again for ",
              absl::FormatDuration(absl::Trunc(judged.closed_for, absl::Milliseconds(100)))),
          now);
  }
}

}  // namespace lodestar::coordinator
