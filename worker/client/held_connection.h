// HeldConnection: one call of StayConnected, which the coordinator holds for as long as the
// connection lives. It tells the worker at once that the connection is gone.
#pragma once

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/cluster_messages.h"
#include "proto/cluster_service.grpc.pb.h"

namespace lodestar {

class HeldConnection {
 public:
  // Begins the call. `on_ended` is called once, from a thread of gRPC, with how it has ended.
  HeldConnection(std::shared_ptr<v1::ClusterService::Stub> stub, const WorkerLife& life,
                 const std::string& life_secret, std::function<void(const absl::Status&)> on_ended);
  // Cancels the call and blocks until `on_ended` has returned.
  ~HeldConnection();

  // That the call was made with.
  const std::shared_ptr<v1::ClusterService::Stub>& stub() const { return stub_; }

 private:
  const std::shared_ptr<v1::ClusterService::Stub> stub_;
  grpc::ClientContext context_;
  v1::StayConnectedRequest request_;
  v1::StayConnectedReply reply_;
  absl::Notification ended_;
};

// When a worker dials again whose connection was closed: at once, and then after pauses that grow
// while connections that it gets do not last. Even the longest is well below the time after which a
// server may take the worker for lost. Pure: the time is given.
class RedialPace {
 public:
  static constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
  static constexpr absl::Duration kLongestPause = absl::Milliseconds(400);
  static constexpr absl::Duration kLasting = absl::Seconds(1);

  // A connection is held from now on.
  void OnHeld(absl::Time now) { held_at_ = now; }
  // The connection was closed, or could not be opened. Returns how long to wait.
  absl::Duration OnFailed(absl::Time now) {
    const bool has_lasted = now - held_at_ >= kLasting;
    held_at_ = absl::InfiniteFuture();
    if (has_lasted) next_ = absl::ZeroDuration();
    const absl::Duration pause = next_;
    next_ = next_ == absl::ZeroDuration() ? kFirstPause : std::min(2 * next_, kLongestPause);
    return pause;
  }

 private:
  absl::Time held_at_ = absl::InfiniteFuture();
  absl::Duration next_ = absl::ZeroDuration();
};

}  // namespace lodestar
