// SPDX-License-Identifier: Apache-2.0

#include "proto/bulk_options.h"

#include <google/protobuf/struct.pb.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "common/logging/logging.h"

namespace lodestar::wire {
namespace {

// Returns what the process logs when gRPC cannot listen at an address that no machine has (RFC
// 5737).
std::string WrittenByAFailure() {
  testing::internal::CaptureStderr();
  grpc::ServerBuilder builder;
  ApplyServerOptions(builder);
  builder.AddListeningPort("192.0.2.1:1", grpc::InsecureServerCredentials());
  EXPECT_EQ(builder.BuildAndStart(), nullptr);
  return testing::internal::GetCapturedStderr();
}

TEST(BulkOptionsTest, ErrorsOfGrpcItselfAreForDevelopers) {
  logging::InitLogging("test", logging::LogLevel::kInfo);
  EXPECT_EQ(WrittenByAFailure(), "");
  logging::InitLogging("test", logging::LogLevel::kDebug);
  EXPECT_NE(WrittenByAFailure().find("debug test: grpc "), std::string::npos);
}

TEST(BulkOptionsTest, AllChannelsAskWithinASecondAgainWhereANameLeads) {
  for (const grpc::ChannelArguments& arguments :
       {DataChannelArguments(), ControlChannelArguments()}) {
    const grpc_channel_args channel = arguments.c_channel_args();
    int milliseconds = -1;
    for (size_t i = 0; i < channel.num_args; ++i) {
      const grpc_arg& arg = channel.args[i];
      if (std::string(arg.key) == GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS) {
        milliseconds = arg.value.integer;
      }
    }
    EXPECT_GT(milliseconds, 0);
    EXPECT_LE(milliseconds, 1000);
  }
}

// protobuf's message about a text that is not UTF-8 must be logged only at the level debug.
// Otherwise any peer could fill the log.
TEST(BulkOptionsTest, ErrorsOfProtobufAreForDevelopers) {
  DataChannelArguments();
  const auto written_by_a_text = [] {
    testing::internal::CaptureStderr();
    google::protobuf::Value value;
    EXPECT_FALSE(value.ParseFromString("\x1a\x01\xff"));
    return testing::internal::GetCapturedStderr();
  };
  logging::InitLogging("test", logging::LogLevel::kInfo);
  EXPECT_EQ(written_by_a_text(), "");
  logging::InitLogging("test", logging::LogLevel::kDebug);
  EXPECT_NE(written_by_a_text().find("debug test: protobuf "), std::string::npos);
}

}  // namespace
}  // namespace lodestar::wire
