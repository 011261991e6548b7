#include "deploy/psctl/cluster_client.h"

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar {
namespace {

using ::testing::AllOf;
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
  EXPECT_THAT(ClusterClient(AddressList::Of(address), TransportSecurity())
                  .Checkpoint([](const v1::ClusterStatus&) {}),
              StatusIs(absl::StatusCode::kUnavailable,
                       absl::StrCat("ps_server at ", address, ": shard 1: the disk is full")));
  server->Shutdown();
  server.reset();
  EXPECT_THAT(ClusterClient(AddressList::Of(address), TransportSecurity())
                  .Checkpoint([](const v1::ClusterStatus&) {}),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("; is it running, and is --server right?")));
}

class Coordinator final : public v1::StatusService::Service {
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::ClusterStatus* reply) override {
    reply->set_state("training");
    reply->set_layout_hash("a\x1b[2J");
    return grpc::Status::OK;
  }
};

TEST(ClusterClientTest, WhatAServerSaysCannotRuleTheTerminal) {
  Coordinator coordinator;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&coordinator);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto status =
      ClusterClient(AddressList::Of(absl::StrCat("127.0.0.1:", port)), TransportSecurity())
          .GetStatus();
  ASSERT_OK(status.status());
  EXPECT_EQ(status->layout_hash(), "a\\x1b[2J");
}

TEST(ClusterClientTest, OfSeveralServersTheOneThatAnswersIsAsked) {
  v1::StatusService::Service stands_by;
  Coordinator coordinator;
  int ports[2] = {};
  std::vector<std::unique_ptr<grpc::Server>> servers;
  for (v1::StatusService::Service* service :
       {&stands_by, static_cast<v1::StatusService::Service*>(&coordinator)}) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &ports[servers.size()]);
    builder.RegisterService(service);
    servers.push_back(builder.BuildAndStart());
  }
  const std::vector<std::string> addresses = {"127.0.0.1:1", absl::StrCat("127.0.0.1:", ports[0]),
                                              absl::StrCat("127.0.0.1:", ports[1])};
  ClusterClient client{AddressList(addresses), TransportSecurity()};
  ASSERT_OK_AND_ASSIGN(const v1::ClusterStatus status, client.GetStatus());
  EXPECT_EQ(status.state(), "training");
  EXPECT_EQ(client.server(), addresses[2]);
  servers.back()->Shutdown();
  EXPECT_THAT(client.GetStatus(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr(addresses[0]), HasSubstr(addresses[1]),
                             HasSubstr(addresses[2]), HasSubstr("is it running"))));
}

}  // namespace
}  // namespace lodestar
