// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/status_rpc.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace lodestar::rpc {
namespace {

// The alarm of a watch reads the second status on a thread of its own. The gRPC server does not
// wait for that thread when it stops.
TEST(StatusRpcTest, NoStatusIsReadAfterStop) {
  absl::Notification is_reading;
  absl::Notification has_stopped;
  std::atomic<int> num_reads = 0;
  std::atomic<bool> is_outlived = false;
  StatusRpc rpc(
      [&] {
        if (++num_reads == 2) {
          is_reading.Notify();
          // Stop() must wait until this read is over. If it does not wait, has_stopped is notified
          // within the time limit.
          is_outlived = has_stopped.WaitForNotificationWithTimeout(absl::Milliseconds(100));
        }
        return v1::ClusterStatus();
      },
      [] { return history::RunHistory(); });
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&rpc);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto stub = v1::StatusService::NewStub(
      grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  v1::WatchStatusRequest request;
  request.set_interval_ms(100);
  const auto reader = stub->WatchStatus(&context, request);
  v1::ClusterStatus status;
  EXPECT_TRUE(reader->Read(&status));

  is_reading.WaitForNotification();
  rpc.Stop(/*is_job_over=*/true);
  has_stopped.Notify();
  while (reader->Read(&status)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  server->Shutdown();
  EXPECT_FALSE(is_outlived);
}

}  // namespace
}  // namespace lodestar::rpc
