// SPDX-License-Identifier: Apache-2.0

// HeldConnection is one call of StayConnected. The coordinator does not answer it as long as the
// connection exists. So the worker learns at once when the connection ends.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "common/messages/cluster_messages.h"
#include "proto/cluster_service.grpc.pb.h"

namespace lodestar::client {

class HeldConnection {
 public:
  // Begins the call. `on_ended` is called once, on a gRPC thread, with the status of the call.
  HeldConnection(std::shared_ptr<v1::ClusterService::Stub> stub, const messages::WorkerLife& life,
                 const std::string& life_secret, std::function<void(const absl::Status&)> on_ended);
  // Cancels the call and blocks until `on_ended` has returned.
  ~HeldConnection();

  // Returns the stub that the call was made with.
  const std::shared_ptr<v1::ClusterService::Stub>& stub() const { return stub_; }

 private:
  const std::shared_ptr<v1::ClusterService::Stub> stub_;
  grpc::ClientContext context_;
  v1::StayConnectedRequest request_;
  v1::StayConnectedReply reply_;
  absl::Notification ended_;
};

}  // namespace lodestar::client
