// SPDX-License-Identifier: Apache-2.0

// HeldConnections holds the calls of StayConnected: one for each worker, for its newest
// incarnation. If the connection of a held call ends, the coordinator is told which side has ended
// it. If the client cancels the call and its connection stays, nothing is reported. The class is
// thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/ids.h"
#include "server/firewall/connection_table.h"
#include "server/limits/origin_places.h"

namespace lodestar::rpc {

class HeldConnections {
 public:
  struct Deps {
    // Returns the state of the connection from this grpc::ServerContext::peer().
    std::function<firewall::ConnectionState(const std::string& peer)> state_of;
    // Called once for each call whose connection has ended, without a lock held.
    std::function<void(const messages::WorkerLife& life, const std::string& peer,
                       firewall::ConnectionState end)>
        on_ended;
  };

  explicit HeldConnections(Deps deps) : deps_(std::move(deps)) {}

  // Holds a call of this incarnation. If another call is held for the worker, that call is answered
  // with Cancelled. Requires that the incarnation `life` is alive and that the caller may speak for
  // it. `place` is released at the end of the call.
  grpc::ServerUnaryReactor* Hold(const messages::WorkerLife& life, std::string peer,
                                 limits::OriginPlaces::Place place) ABSL_LOCKS_EXCLUDED(mutex_);
  // Answers all held calls with OK. Later calls are answered with OK at once.
  void EndAll() ABSL_LOCKS_EXCLUDED(mutex_);
  size_t num_held() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return held_.size();
  }

 private:
  class Call;

  // Handles the end of the call's connection, or the cancellation of the call by its client.
  void OnCancelled(Call& call) ABSL_LOCKS_EXCLUDED(mutex_);
  // Stops holding the call. Returns false if it was not held any more, because another call has
  // replaced it or EndAll() has ended it.
  bool Release(Call& call) ABSL_LOCKS_EXCLUDED(mutex_);

  const Deps deps_;
  mutable absl::Mutex mutex_;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<WorkerId, Call*> held_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::rpc
