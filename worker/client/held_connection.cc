// SPDX-License-Identifier: Apache-2.0

#include "worker/client/held_connection.h"

#include <utility>

#include "proto/bulk_options.h"
#include "proto/convert_cluster.h"
#include "proto/status_mapping.h"

namespace lodestar::client {

HeldConnection::HeldConnection(std::shared_ptr<v1::ClusterService::Stub> stub,
                               const messages::WorkerLife& life, const std::string& life_secret,
                               std::function<void(const absl::Status&)> on_ended)
    : stub_(std::move(stub)) {
  wire::SetLife(life, &request_);
  if (!life_secret.empty()) context_.AddMetadata(wire::kLifeSecretKey, life_secret);
  stub_->async()->StayConnected(&context_, &request_, &reply_,
                                [this, on_ended = std::move(on_ended)](const grpc::Status& status) {
                                  on_ended(wire::FromGrpcStatus(status));
                                  ended_.Notify();
                                });
}

HeldConnection::~HeldConnection() {
  context_.TryCancel();
  ended_.WaitForNotification();
}

}  // namespace lodestar::client
