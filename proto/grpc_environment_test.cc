// SPDX-License-Identifier: Apache-2.0

#include "proto/grpc_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "common/testing/status_matchers.h"

namespace lodestar::wire {
namespace {

using ::testing::HasSubstr;

class GrpcEnvironmentTest : public ::testing::TestWithParam<std::string> {
 protected:
  absl::Status With(const std::string& value) {
    setenv(GetParam().c_str(), value.c_str(), /*overwrite=*/1);
    absl::Status status = CheckGrpcEnvironment();
    unsetenv(GetParam().c_str());
    return status;
  }
};

class PollStrategyTest : public GrpcEnvironmentTest {};

TEST_P(PollStrategyTest, RefusesWhatGrpcAbortsWith) {
  for (const std::string value : {"epollex", "legacy", "none", "", "none,poll", "epoll1 "}) {
    EXPECT_THAT(With(value), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr(GetParam() + "=" + value + ":")));
  }
}

TEST_P(PollStrategyTest, TakesListsWhoseFirstKnownNameWorks) {
  for (const std::string value : {"epoll1", "poll", "all", "epollex,poll", "poll,none"}) {
    EXPECT_OK(With(value)) << value;
  }
}

INSTANTIATE_TEST_SUITE_P(Grpc, PollStrategyTest, ::testing::Values("GRPC_POLL_STRATEGY"));

class CipherSuitesTest : public GrpcEnvironmentTest {};

TEST_P(CipherSuitesTest, RefusesWhatOpensslTakesNoCipherOf) {
  for (const std::string value : {"bogus", ""}) {
    EXPECT_THAT(With(value), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr(GetParam() + "=" + value + ":")));
  }
}

TEST_P(CipherSuitesTest, TakesNamesOfCiphers) {
  EXPECT_OK(With("bogus:ECDHE-ECDSA-AES128-GCM-SHA256"));
}

INSTANTIATE_TEST_SUITE_P(Grpc, CipherSuitesTest, ::testing::Values("GRPC_SSL_CIPHER_SUITES"));

TEST(GrpcEnvironmentDeathTest, AValueThatGrpcAbortsWithEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("GRPC_POLL_STRATEGY", "epollex", /*overwrite=*/1);
        ExitUnlessTransportWorks("psctl");
      },
      testing::ExitedWithCode(1), "^psctl: GRPC_POLL_STRATEGY=epollex: ");
}

TEST(GrpcEnvironmentDeathTest, AnEmptyEnvironmentIsTaken) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ExitUnlessTransportWorks("psctl");
        std::_Exit(0);
      },
      testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace lodestar::wire
