// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/cluster_client.h"

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/runtime/file_descriptor.h"
#include "common/runtime/remedy.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::psctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

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
  EXPECT_THAT(ClusterClient(net::AddressList::Of(address), wire::TransportSecurity())
                  .Checkpoint([](const v1::ClusterStatus&) {}),
              StatusIs(absl::StatusCode::kUnavailable,
                       absl::StrCat("ps_server at ", address, ": shard 1: the disk is full")));
  server->Shutdown();
  server.reset();
  EXPECT_THAT(ClusterClient(net::AddressList::Of(address), wire::TransportSecurity())
                  .Checkpoint([](const v1::ClusterStatus&) {}),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("; is it running, and is --server right?")));
}

// The test listens, but accepts no connection. The system accepts connections instead, as it does
// for a process that is stopped.
TEST(ClusterClientTest, WhoTakesConnectionsAndSaysNothingIsSaidToHang) {
  const FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(place);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&place), size), 0);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&place), &size), 0);
  ASSERT_EQ(listen(listener.get(), 8), 0);
  const std::string address = absl::StrCat("127.0.0.1:", ntohs(place.sin_port));
  ClusterClient client(net::AddressList::Of(address), wire::TransportSecurity());
  const absl::Status status = client.GetStatus().status();
  EXPECT_EQ(RemedyFor(status), Remedy::kRepeat) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(StartsWith(absl::StrCat("ps_server at ", address,
                                            " accepts connections, but has not answered since ")),
                    HasSubstr("kill -CONT"), Not(HasSubstr("is it running"))));
  EXPECT_EQ(client.Anew().GetStatus().status(), status) << "since the same time";
}

class Silent final : public v1::AdminService::Service {
 public:
  absl::Notification is_over;

 private:
  grpc::Status Pause(grpc::ServerContext*, const v1::PauseRequest*, v1::PauseReply*) override {
    is_over.WaitForNotification();
    return grpc::Status::OK;
  }
};

TEST(ClusterClientTest, WhoIsConnectedAndSaysNothingMayStillDoWhatItWasAskedFor) {
  Silent service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ClusterClient client(net::AddressList::Of(absl::StrCat("127.0.0.1:", port)),
                       wire::TransportSecurity());
  EXPECT_THAT(client.Pause(""), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                         AllOf(HasSubstr("is connected, but has not answered"),
                                               HasSubstr("the server may still do"))));
  service.is_over.Notify();
}

// A fake service that sends one part of an export, and then nothing.
class SilentExport final : public v1::AdminService::Service {
 public:
  absl::Notification is_over;

 private:
  grpc::Status Export(grpc::ServerContext*, const v1::ExportRequest*,
                      grpc::ServerWriter<v1::ExportChunk>* writer) override {
    v1::ExportChunk chunk;
    chunk.set_data("part");
    writer->Write(chunk);
    is_over.WaitForNotification();
    return grpc::Status::OK;
  }
};

TEST(ClusterClientTest, ExportThatHangsEndsOnceToldToStop) {
  SilentExport service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ClusterClient client(net::AddressList::Of(absl::StrCat("127.0.0.1:", port)),
                       wire::TransportSecurity());
  std::stop_source stop;
  client.StopWith(stop.get_token());
  const auto take = [&stop](absl::string_view) {
    stop.request_stop();
    return true;
  };
  EXPECT_THAT(client.Export(take, [](const v1::ClusterStatus&) {}),
              StatusIs(absl::StatusCode::kCancelled));
  service.is_over.Notify();
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
  const auto status = ClusterClient(net::AddressList::Of(absl::StrCat("127.0.0.1:", port)),
                                    wire::TransportSecurity())
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
  ClusterClient client{net::AddressList(addresses), wire::TransportSecurity()};
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
}  // namespace lodestar::psctl
