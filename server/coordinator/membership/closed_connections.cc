// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/membership/closed_connections.h"

#include <algorithm>
#include <cstddef>

namespace lodestar::membership {

void ClosedConnections::OnEnded(const messages::WorkerLife& life, const std::string& peer,
                                bool by_peer, absl::Time now) {
  Forget(now);
  Closing& closing = closings_[life.worker] = Closing();
  closing.life = life;
  closing.peer = peer;
  closing.at = now;
  closing.is_evidence = by_peer;
}

void ClosedConnections::OnHeard(const messages::WorkerLife& life, absl::string_view peer) {
  const auto found = closings_.find(life.worker);
  if (found == closings_.end() || found->second.peer == peer) return;
  found->second.is_evidence = false;
}

void ClosedConnections::OnGap(absl::Time now) {
  for (auto& [worker, closing] : closings_) {
    closing.at = now;
    closing.is_asked = false;
    closing.closed_at.clear();
  }
}

void ClosedConnections::OnAnswer(int shard, const messages::WorkerLife& life, bool are_closed) {
  const auto found = closings_.find(life.worker);
  if (found == closings_.end() || found->second.life != life || !found->second.is_asked) return;
  if (are_closed) {
    found->second.closed_at.insert(shard);
  } else {
    found->second.is_evidence = false;
  }
}

ClosedConnections::Verdict ClosedConnections::Judge(const messages::WorkerLife& awaited,
                                                    absl::Duration patience, absl::Time now) {
  Forget(now);
  const auto found = closings_.find(awaited.worker);
  if (found == closings_.end()) return Verdict::kWait;
  Closing& closing = found->second;
  if (closing.life != awaited || !closing.is_evidence || now - closing.at < patience) {
    return Verdict::kWait;
  }
  // If two workers lost connections together, a proxy or the network is the probable cause.
  const bool is_alone = std::none_of(closings_.begin(), closings_.end(), [&](const auto& other) {
    return other.first != awaited.worker && other.second.at >= closing.at - patience;
  });
  if (!is_alone) return Verdict::kWait;
  if (!closing.is_asked) {
    closing.is_asked = true;
    return Verdict::kAsk;
  }
  const bool all_closed = closing.closed_at.size() == static_cast<size_t>(config_.num_shards);
  return all_closed ? Verdict::kEnd : Verdict::kWait;
}

void ClosedConnections::Forget(absl::Time now) {
  std::erase_if(closings_, [&](const auto& it) { return now - it.second.at > config_.lease; });
}

}  // namespace lodestar::membership
