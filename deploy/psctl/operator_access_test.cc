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
#include "common/security/testing/test_authority.h"
#include "common/testing/status_matchers.h"
#include "proto/authority_service.grpc.pb.h"

ABSL_DECLARE_FLAG(std::string, state_dir);

namespace lodestar {
namespace {

using ::testing::HasSubstr;

// With the certificate of an operator that an earlier start has kept.
class OperatorAccessTest : public ::testing::Test {
 protected:
  OperatorAccessTest() {
    unsetenv("LODESTAR_JOIN");
    const std::string state_dir = absl::StrCat(::testing::TempDir(), "/operator-", RandomHex(4));
    absl::SetFlag(&FLAGS_state_dir, state_dir);
    const auto credentials =
        ReadCredentials(TestAuthority().FilesFor({Role::kOperator, "ann", "01"}));
    EXPECT_OK(credentials);
    EXPECT_OK(WriteCredentials(state_dir + "/joined/1111/operator", *credentials));
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

}  // namespace
}  // namespace lodestar
