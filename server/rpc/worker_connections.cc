// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/worker_connections.h"

#include <algorithm>

namespace lodestar::rpc {

void WorkerConnections::Note(const messages::WorkerLife& life, const std::string& peer) {
  absl::MutexLock lock(&mutex_);
  if (workers_.size() >= kMaxWorkers && !workers_.contains(life.worker)) {
    has_more_ = true;
    return;
  }
  Worker& worker = workers_[life.worker];
  if (life.incarnation < worker.incarnation) return;
  if (life.incarnation > worker.incarnation) worker = Worker{life.incarnation, {}, false};
  if (std::find(worker.peers.begin(), worker.peers.end(), peer) != worker.peers.end()) return;
  std::erase_if(worker.peers, [this](const std::string& other) {
    return state_of_(other) != firewall::ConnectionState::kOpen;
  });
  if (worker.peers.size() >= kMaxConnections) {
    worker.has_more = true;
    return;
  }
  worker.peers.push_back(peer);
}

bool WorkerConnections::AreClosed(const messages::WorkerLife& life) const {
  std::vector<std::string> peers;
  {
    absl::MutexLock lock(&mutex_);
    if (has_more_) return false;
    const auto found = workers_.find(life.worker);
    if (found == workers_.end() || found->second.incarnation != life.incarnation) return true;
    if (found->second.has_more) return false;
    peers = found->second.peers;
  }
  return std::all_of(peers.begin(), peers.end(), [this](const std::string& peer) {
    return state_of_(peer) == firewall::ConnectionState::kClosed;
  });
}

}  // namespace lodestar::rpc
