// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/operator_access.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "common/runtime/local_path.h"
#include "common/security/testing/test_authority.h"
#include "common/testing/status_matchers.h"
#include "proto/authority_service.grpc.pb.h"

ABSL_DECLARE_FLAG(lodestar::LocalPath, state_dir);

namespace lodestar::psctl {
namespace {

using ::testing::HasSubstr;

// Fixture whose state folder has the certificate of an operator, kept by an earlier start.
class OperatorAccessTest : public ::testing::Test {
 protected:
  OperatorAccessTest() {
    unsetenv("LODESTAR_JOIN");
    const std::string state_dir =
        absl::StrCat(::testing::TempDir(), "/operator-", security::RandomHex(4));
    absl::SetFlag(&FLAGS_state_dir, state_dir);
    const auto credentials = security::ReadCredentials(
        security::TestAuthority().FilesFor({security::Role::kOperator, "ann", "01"}));
    EXPECT_OK(credentials);
    EXPECT_OK(security::WriteCredentials(state_dir + "/joined/1111/operator", *credentials));
  }
};

TEST_F(OperatorAccessTest, AServerThatIsAwayIsNotGoneToInPlainText) {
  EXPECT_THAT(FindOperatorAccess("127.0.0.1:1", /*is_given=*/true).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("ps_server at 127.0.0.1:1: cannot connect"),
                             HasSubstr("is it running, and is --server right?"))));
}

TEST_F(OperatorAccessTest, AServerOfThisMachineThatSpeaksPlainTextIs) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  v1::AuthorityService::CallbackService service;
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto access = FindOperatorAccess(absl::StrCat("127.0.0.1:", port), /*is_given=*/true);
  ASSERT_OK(access);
  EXPECT_FALSE(access->joined.has_value());
}

// The coordinator's machine has the operator's own certificate in its state folder. In its shell,
// $LODESTAR_JOIN has the workers' join string.
TEST_F(OperatorAccessTest, AJoinStringOfTheEnvironmentIsNothingToWhoHasTheCoordinatorsOwn) {
  const security::TestAuthority authority;
  const security::CredentialFiles own =
      authority.FilesFor({security::Role::kOperator, "local-operator", "02"});
  const auto credentials = security::ReadCredentials(own);
  ASSERT_OK(credentials);
  ASSERT_OK(security::WriteCredentials(
      absl::StrCat(std::string(absl::GetFlag(FLAGS_state_dir)), "/operator"), *credentials));
  const auto credentials_of_server =
      wire::TransportSecurity(authority.FilesFor({security::Role::kServer, "shard-0", "03"}))
          .MakeServerCredentials(
              [](const security::Identity&, absl::string_view) { return absl::OkStatus(); });
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", credentials_of_server, &port);
  v1::AuthorityService::CallbackService service;
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const std::string address = absl::StrCat("127.0.0.1:", port);
  const std::string hash = security::FingerprintOf(authority.authority().certificate).value_or("");
  setenv("LODESTAR_JOIN", absl::StrCat("lodestar://", address, "/L1", hash, ".0a.0b").c_str(), 1);
  // psctl takes the address from the join string, and not from the default of --server.
  const auto access = FindOperatorAccess("127.0.0.1:1", /*is_given=*/false);
  ASSERT_OK(access);
  EXPECT_FALSE(access->security.is_plain());
  EXPECT_EQ(access->servers.ToString(), address);
  // If the join string is of another cluster than the certificate in the state folder, psctl uses
  // the join string.
  const std::string other(64, 'a');
  setenv("LODESTAR_JOIN", absl::StrCat("lodestar://127.0.0.1:1/L1", other, ".0a.0b").c_str(), 1);
  EXPECT_THAT(FindOperatorAccess(address, /*is_given=*/false).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("$LODESTAR_JOIN: cannot enrol at 127.0.0.1:1: ")));
  unsetenv("LODESTAR_JOIN");
}

}  // namespace
}  // namespace lodestar::psctl
