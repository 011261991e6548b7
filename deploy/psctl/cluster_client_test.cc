#include "deploy/psctl/cluster_client.h"

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar {
namespace {

using ::testing::HasSubstr;

class FullDisk final : public v1::AdminService::Service {
  grpc::Status Checkpoint(grpc::ServerContext*, const v1::CheckpointRequest*,
                          v1::CheckpointReply*) override {
    return {grpc::StatusCode::UNAVAILABLE, "shard 1: the disk is full"};
  }
};

TEST(ClusterClientTest, OnlyWhereNobodyAnswersTheAddressIsInDoubt) {
  FullDisk service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const std::string address = absl::StrCat("127.0.0.1:", port);
  EXPECT_THAT(ClusterClient(address).Checkpoint([](const v1::ClusterStatus&) {}),
              StatusIs(absl::StatusCode::kUnavailable,
                       absl::StrCat("ps_server at ", address, ": shard 1: the disk is full")));
  server->Shutdown();
  server.reset();
  EXPECT_THAT(ClusterClient(address).Checkpoint([](const v1::ClusterStatus&) {}),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("; is it running, and is --server right?")));
}

}  // namespace
}  // namespace lodestar
