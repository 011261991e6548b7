// SPDX-License-Identifier: Apache-2.0

#include "worker/client/call_tracer.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/runtime/status_hints.h"
#include "common/testing/simulated_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/bulk_options.h"
#include "proto/cluster_service.grpc.pb.h"
#include "proto/status_mapping.h"

namespace lodestar::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A server with scripted answers. If `gives_back` is false, it does not return the ids of calls,
// like servers of an earlier release.
class Server final : public v1::ClusterService::Service {
 public:
  grpc::Status Join(grpc::ServerContext* context, const v1::JoinRequest*, v1::JoinReply*) override {
    const auto id = context->client_metadata().find(wire::kRequestIdKey);
    asked = std::string(id->second.data(), id->second.size());
    if (gives_back && !answer.ok()) context->AddTrailingMetadata(wire::kRequestIdKey, asked);
    return wire::ToGrpcStatus(answer);
  }

  absl::Status answer;
  bool gives_back = true;
  std::string asked;
};

class CallTracerTest : public testing::Test {
 protected:
  CallTracerTest() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&server_);
    running_ = builder.BuildAndStart();
    stub_ = v1::ClusterService::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  }
  ~CallTracerTest() override { running_->Shutdown(); }

  void Join(const absl::Status& answer) {
    server_.answer = answer;
    grpc::ClientContext context;
    const messages::CallFacts facts = tracer_.Begin("Join", context);
    v1::JoinReply reply;
    const grpc::Status status = stub_->Join(&context, v1::JoinRequest(), &reply);
    tracer_.End(facts, context, wire::FromGrpcStatus(status));
    EXPECT_EQ(server_.asked, facts.request);
  }

  Server server_;
  std::unique_ptr<grpc::Server> running_;
  std::unique_ptr<v1::ClusterService::Stub> stub_;
  SimulatedClock clock_;
  std::vector<std::string> lines_;
  CallTracer tracer_{"a", 0xab, &clock_, [this](logging::LogLevel, absl::string_view line) {
                       lines_.emplace_back(line);
                     }};
};

TEST_F(CallTracerTest, ARefusalIsToldWithItsIdAndOneThatIsRepeatedOnce) {
  Join(absl::FailedPreconditionError("other data"));
  Join(absl::FailedPreconditionError("other data"));
  Join(absl::FailedPreconditionError("other layout"));
  Join(absl::FailedPreconditionError("other layout, last heard of 12ms ago"));
  Join(WithRetryAfter(absl::FailedPreconditionError("other layout, last heard of 1.2s ago"),
                      absl::Seconds(3)));
  Join(absl::OkStatus());
  Join(absl::FailedPreconditionError("other layout"));
  EXPECT_THAT(
      lines_,
      ElementsAre("call failed call=Join request=000000ab-1 name=a reason=FAILED_PRECONDITION: "
                  "other data",
                  "call failed call=Join request=000000ab-3 name=a reason=FAILED_PRECONDITION: "
                  "other layout",
                  "call failed call=Join request=000000ab-4 name=a reason=FAILED_PRECONDITION: "
                  "other layout, last heard of 12ms ago",
                  "call failed call=Join request=000000ab-7 name=a reason=FAILED_PRECONDITION: "
                  "other layout"));
}

TEST_F(CallTracerTest, WhatNoServerHasInItsLogIsForDebugging) {
  server_.gives_back = false;
  Join(absl::FailedPreconditionError("of an earlier release"));
  EXPECT_THAT(lines_, IsEmpty());
}

}  // namespace
}  // namespace lodestar::client
