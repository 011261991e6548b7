// The calls of StayConnected that are held: one for each worker, of its newest life. How the
// connection under such a call ends is told to the coordinator. If the client cancels the call and
// its connection stays, nothing is told. Thread-safe.
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
    // Returns what has become of the connection from this grpc::ServerContext::peer().
    std::function<firewall::ConnectionState(const std::string& peer)> state_of;
    // Called once for each call whose connection has ended, without a lock held.
    std::function<void(const WorkerLife& life, const std::string& peer,
                       firewall::ConnectionState end)>
        on_ended;
  };

  explicit HeldConnections(Deps deps) : deps_(std::move(deps)) {}

  // Holds a call of this life in place of one that is held for the worker, which is answered
  // Cancelled. `life` is alive, and the caller may speak for it. `place` is given back with the
  // end of the call.
  grpc::ServerUnaryReactor* Hold(const WorkerLife& life, std::string peer,
                                 limits::OriginPlaces::Place place) ABSL_LOCKS_EXCLUDED(mutex_);
  // Answers all calls with OK, and later ones at once.
  void EndAll() ABSL_LOCKS_EXCLUDED(mutex_);
  size_t num_held() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return held_.size();
  }

 private:
  class Call;

  // The connection of the call is gone, or the client has cancelled it.
  void OnCancelled(Call& call) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the call is still held. It is not held any more.
  bool Release(Call& call) ABSL_LOCKS_EXCLUDED(mutex_);

  const Deps deps_;
  mutable absl::Mutex mutex_;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<WorkerId, Call*> held_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::rpc
