// SPDX-License-Identifier: Apache-2.0

#include "proto/status_mapping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/runtime/remedy.h"
#include "common/runtime/status_hints.h"
#include "common/testing/status_matchers.h"

namespace lodestar::wire {
namespace {

using ::testing::HasSubstr;

TEST(StatusMappingTest, EveryCodeSurvivesButThoseOfDefects) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "text");
    const absl::Status back = FromGrpcStatus(ToGrpcStatus(status));
    if (absl::IsInternal(status) || absl::IsUnknown(status)) {
      EXPECT_THAT(back, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("text")));
    } else {
      EXPECT_EQ(back, status) << code;
    }
  }
}

TEST(StatusMappingTest, ErrorWithoutTextGetsOne) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status back = FromGrpcStatus(grpc::Status(static_cast<grpc::StatusCode>(code), ""));
    EXPECT_FALSE(back.message().empty()) << code;
  }
  EXPECT_THAT(FromGrpcStatus(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "")),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("no ps_server")));
}

TEST(StatusMappingTest, ARefusalThatNamesNoCauseIsNotFinal) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status back = FromGrpcStatus(grpc::Status(static_cast<grpc::StatusCode>(code), ""));
    EXPECT_NE(RemedyFor(back), Remedy::kGiveUp) << back;
  }
}

TEST(StatusMappingTest, HintsCrossTheWire) {
  const absl::Status status = WithCoordinator(
      WithTimesRenewed(WithRetryAfter(absl::AlreadyExistsError("held"), absl::Milliseconds(1500)),
                       0),
      "host:50051");
  const absl::Status back = FromGrpcStatus(ToGrpcStatus(status));
  EXPECT_EQ(back, status);
  EXPECT_EQ(RetryAfterOf(back), absl::Milliseconds(1500));
  EXPECT_EQ(TimesRenewedOf(back), 0);
  EXPECT_EQ(CoordinatorOf(back), "host:50051");
  EXPECT_FALSE(IsJobOver(back));
  const absl::Status over = WithJobOver(absl::FailedPreconditionError("stopped"));
  EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(over)), over);
  EXPECT_TRUE(IsJobOver(over));
  EXPECT_EQ(ToGrpcStatus(absl::AbortedError("plain")).error_details(), "");
}

TEST(StatusMappingTest, StrangeDetailsAreIgnored) {
  const grpc::Status status(grpc::StatusCode::ABORTED, "text", "no message at all");
  EXPECT_EQ(FromGrpcStatus(status), absl::AbortedError("text"));
}

TEST(StatusMappingTest, WhatAPeerNamesIsDialledIfItIsHostAndPort) {
  const absl::Status sent = WithCoordinator(absl::UnimplementedError("elsewhere"), "unix:/tmp/x");
  const absl::Status back = FromGrpcStatus(ToGrpcStatus(sent));
  EXPECT_THAT(back, StatusIs(absl::StatusCode::kUnimplemented, "elsewhere"));
  EXPECT_EQ(CoordinatorOf(back), std::nullopt);
}

TEST(StatusMappingTest, NobodyIsKeptWaitingForAges) {
  const absl::Status sent =
      WithRetryAfter(absl::AlreadyExistsError("held"), absl::Hours(1'000'000));
  EXPECT_EQ(RetryAfterOf(FromGrpcStatus(ToGrpcStatus(sent))), absl::Hours(24));
}

TEST(StatusMappingTest, TextOfAPeerCannotRuleATerminal) {
  const absl::Status back = FromGrpcStatus(
      grpc::Status(grpc::StatusCode::ABORTED, "a\x1b[2J\n" + std::string(100'000, 'x')));
  EXPECT_THAT(std::string(back.message()), testing::StartsWith("a\\x1b[2J\\nx"));
  EXPECT_LT(back.message().size(), 3000u);
}

TEST(StatusMappingTest, WhatIsNoServerOfGrpcIsToldAsSuch) {
  for (const char* const text : {"Failed parsing HTTP/2", "Trying to connect an http1.x server"}) {
    EXPECT_THAT(FromGrpcStatus(grpc::Status(grpc::StatusCode::UNAVAILABLE, text)),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("is no ps_server")));
  }
}

TEST(StatusMappingTest, NamesAgreeOnBothSides) {
  EXPECT_EQ(ToGrpcStatus(absl::AbortedError("")).error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(ToGrpcStatus(absl::DataLossError("")).error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(ToGrpcStatus(absl::UnavailableError("")).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(StatusMappingTest, CodeOfANewerPeerPasses) {
  const grpc::Status status(static_cast<grpc::StatusCode>(99), "later");
  EXPECT_THAT(FromGrpcStatus(status), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("99")));
}

TEST(StatusMappingTest, LongTextIsCut) {
  const grpc::Status status = ToGrpcStatus(absl::AbortedError(std::string(100'000, 'x')));
  EXPECT_EQ(status.error_message().size(), 2048);
}

}  // namespace
}  // namespace lodestar::wire
