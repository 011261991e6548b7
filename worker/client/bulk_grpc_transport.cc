// SPDX-License-Identifier: Apache-2.0

#include "worker/client/bulk_grpc_transport.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/client/bulk_connections.h"
#include "worker/client/bulk_pull_session.h"
#include "worker/client/bulk_push_session.h"

namespace lodestar::client {
namespace {

class BulkGrpcTransport final : public ParameterTransport {
 public:
  explicit BulkGrpcTransport(BulkGrpcTransportConfig config) : connections_(std::move(config)) {}

  std::unique_ptr<PushSession> StartPush(const ContributionHeader& header) override {
    return std::make_unique<BulkPushSession>(&connections_, header);
  }
  std::unique_ptr<PullSession> StartPull(PullSpec spec, BucketCallback on_bucket) override {
    return std::make_unique<BulkPullSession>(&connections_, std::move(spec), std::move(on_bucket));
  }
  std::unique_ptr<PullSession> StartTrial() override {
    return std::make_unique<BulkPullSession>(&connections_);
  }
  bool ReachesDevice(uint32_t bucket) override { return connections_.ReachesDevice(bucket); }
  uint64_t bytes_pushed() const override { return connections_.bytes_pushed; }
  uint64_t bytes_pulled() const override { return connections_.bytes_pulled; }
  messages::PathFacts path() const override { return connections_.path(); }
  std::optional<messages::Standstill> standstill() const override {
    return connections_.standstill();
  }
  void MoveTo(const std::vector<std::string>& addresses) override {
    connections_.MoveTo(addresses);
  }

 private:
  BulkConnections connections_;
};

}  // namespace

std::unique_ptr<ParameterTransport> MakeBulkGrpcTransport(BulkGrpcTransportConfig config) {
  return std::make_unique<BulkGrpcTransport>(std::move(config));
}

}  // namespace lodestar::client
