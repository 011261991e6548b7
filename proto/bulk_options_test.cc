#include "proto/bulk_options.h"

#include <gtest/gtest.h>

#include <memory>

#include "common/logging.h"

namespace lodestar {
namespace {

// What the process writes while gRPC fails to listen on an address that no machine has (RFC 5737).
std::string WrittenByAFailure() {
  testing::internal::CaptureStderr();
  grpc::ServerBuilder builder;
  ApplyServerOptions(builder);
  builder.AddListeningPort("192.0.2.1:1", grpc::InsecureServerCredentials());
  EXPECT_EQ(builder.BuildAndStart(), nullptr);
  return testing::internal::GetCapturedStderr();
}

TEST(BulkOptionsTest, ErrorsOfGrpcItselfAreForDevelopers) {
  InitLogging("test", LogLevel::kInfo);
  EXPECT_EQ(WrittenByAFailure(), "");
  InitLogging("test", LogLevel::kDebug);
  EXPECT_NE(WrittenByAFailure().find("debug test: grpc "), std::string::npos);
}

}  // namespace
}  // namespace lodestar
