#include "proto/status_mapping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/testing/status_matchers.h"

namespace lodestar {
namespace {

TEST(StatusMappingTest, EveryCodeSurvives) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "text");
    EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status) << code;
    EXPECT_EQ(absl::StatusCodeToString(status.code()).empty(), false);
  }
}

TEST(StatusMappingTest, NamesAgreeOnBothSides) {
  EXPECT_EQ(ToGrpcStatus(absl::AbortedError("")).error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(ToGrpcStatus(absl::DataLossError("")).error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(ToGrpcStatus(absl::UnavailableError("")).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(StatusMappingTest, CodeOfANewerPeerIsUnknown) {
  const grpc::Status status(static_cast<grpc::StatusCode>(99), "later");
  EXPECT_THAT(FromGrpcStatus(status),
              StatusIs(absl::StatusCode::kUnknown, ::testing::HasSubstr("99")));
}

TEST(StatusMappingTest, LongTextIsCut) {
  const grpc::Status status = ToGrpcStatus(absl::AbortedError(std::string(100'000, 'x')));
  EXPECT_EQ(status.error_message().size(), 2048);
}

TEST(StatusMappingTest, OnlyWhatMayPassIsRetryable) {
  EXPECT_TRUE(IsRetryable(absl::UnavailableError("")));
  EXPECT_FALSE(IsRetryable(absl::AbortedError("")));
  EXPECT_FALSE(IsRetryable(absl::InvalidArgumentError("")));
  EXPECT_FALSE(IsRetryable(absl::OkStatus()));
}

}  // namespace
}  // namespace lodestar
