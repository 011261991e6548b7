// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/revocation_watch.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "proto/authority_service.grpc.pb.h"
#include "proto/status_mapping.h"
#include "server/rpc/call_refusal.h"

namespace lodestar::rpc {
namespace {

using ::testing::HasSubstr;

// FakeAuthority answers with the identities that the test sets as revoked, or with an error.
class FakeAuthority final : public v1::AuthorityService::Service {
 public:
  FakeAuthority() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeAuthority() override { server_->Shutdown(); }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  // Sets the answer of later calls. Blocks until the watch has received this answer.
  void Say(const std::string& revoked, bool is_away = false) {
    absl::MutexLock lock(&mutex_);
    revoked_ = revoked;
    is_away_ = is_away;
    const int enough = num_calls_ + 3;
    const auto has_asked = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return num_calls_ >= enough;
    };
    mutex_.Await(absl::Condition(&has_asked));
  }

  // Makes `successor` the coordinator from now on.
  void HandOver(const FakeAuthority& successor) {
    absl::MutexLock lock(&mutex_);
    successor_ = successor.address();
  }

  grpc::Status ListRevoked(grpc::ServerContext*, const v1::ListRevokedRequest*,
                           v1::ListRevokedReply* reply) override {
    absl::MutexLock lock(&mutex_);
    ++num_calls_;
    if (!successor_.empty()) return wire::ToGrpcStatus(NotTheCoordinator(1, successor_));
    if (is_away_) return {grpc::StatusCode::UNAVAILABLE, "away"};
    if (revoked_.empty()) return grpc::Status::OK;
    v1::RevokedIdentity* const identity = reply->add_identities();
    identity->set_id(revoked_);
    identity->set_text("it was lost\x1b[2J");
    return grpc::Status::OK;
  }

 private:
  absl::Mutex mutex_;
  int num_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string revoked_ ABSL_GUARDED_BY(mutex_);
  bool is_away_ ABSL_GUARDED_BY(mutex_) = false;
  std::string successor_ ABSL_GUARDED_BY(mutex_);
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST(RevocationWatchTest, KnowsWhoIsRevokedAndStaysWithThatWhileTheAuthorityIsAway) {
  FakeAuthority authority;
  const RevocationWatch watch(wire::TransportSecurity(), authority.address(),
                              absl::Milliseconds(1));
  const security::Identity identity{security::Role::kServer, "server-1", "0af3"};
  const auto is_revoked =
      StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("it was lost\\x1b[2J"));
  authority.Say("");
  EXPECT_OK(watch.CheckNotRevoked(identity));
  authority.Say("0af3");
  EXPECT_THAT(watch.CheckNotRevoked(identity), is_revoked);
  EXPECT_OK(watch.CheckNotRevoked({security::Role::kServer, "server-1", "0af4"}));
  authority.Say("", /*is_away=*/true);
  EXPECT_THAT(watch.CheckNotRevoked(identity), is_revoked);
  authority.Say("");
  EXPECT_OK(watch.CheckNotRevoked(identity));
}

TEST(RevocationWatchTest, FollowsTheCoordinatorToAnotherServer) {
  FakeAuthority authority;
  FakeAuthority standby;
  const RevocationWatch watch(wire::TransportSecurity(), authority.address(),
                              absl::Milliseconds(1));
  authority.Say("");
  authority.HandOver(standby);
  standby.Say("0af3");
  EXPECT_THAT(watch.CheckNotRevoked({security::Role::kServer, "server-1", "0af3"}),
              StatusIs(absl::StatusCode::kUnauthenticated));
}

}  // namespace
}  // namespace lodestar::rpc
