// SPDX-License-Identifier: Apache-2.0

// WorkerConnections knows over which connections each worker has pushed to and pulled from this
// server, and whether the other end has closed all of them. It is thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/ids.h"
#include "server/firewall/connection_table.h"

namespace lodestar::rpc {

class WorkerConnections {
 public:
  // Returns the state of the connection from this grpc::ServerContext::peer().
  using StateOf = std::function<firewall::ConnectionState(absl::string_view peer)>;

  // Maximum number of connections of a worker. A worker has one or two, and more while they are
  // replaced.
  static constexpr size_t kMaxConnections = 8;
  static constexpr size_t kMaxWorkers = 1 << 14;

  explicit WorkerConnections(StateOf state_of) : state_of_(std::move(state_of)) {}

  // Must be called when a bulk call of this incarnation begins over the connection from `peer`.
  // Forgets older incarnations of the worker, and those of its connections that are no longer open.
  void Note(const messages::WorkerLife& life, const std::string& peer) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns true if the other end has closed all connections of this incarnation, or if there were
  // none. Returns false if there are too many workers or connections to remember all.
  bool AreClosed(const messages::WorkerLife& life) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Worker {
    Incarnation incarnation;
    std::vector<std::string> peers;
    bool has_more = false;
  };

  const StateOf state_of_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<WorkerId, Worker> workers_ ABSL_GUARDED_BY(mutex_);
  bool has_more_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace lodestar::rpc
