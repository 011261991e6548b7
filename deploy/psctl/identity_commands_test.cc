// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/identity_commands.h"

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/authority_service.grpc.pb.h"

namespace lodestar::psctl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(IdentityCommandsTest, TimesAreThoseOfPeople) {
  const absl::Time now = absl::FromUnixMillis(1'800'000'000'500);
  v1::ListIdentitiesReply reply;
  v1::PeerIdentity* const identity = reply.add_identities();
  identity->set_role("worker");
  identity->set_name("box");
  identity->set_enrolled_unix_ms(1'800'000'000'000);
  identity->set_expires_unix_ms(absl::ToUnixMillis(now + absl::Hours(24)));
  EXPECT_THAT(IdentityTable(reply, now), HasSubstr("box   now       in 24h"));
  identity->set_revoked_unix_ms(1'800'000'000'400);
  EXPECT_THAT(IdentityTable(reply, now), HasSubstr("revoked now"));
  EXPECT_THAT(IdentityTable(reply, now + absl::Minutes(3)), HasSubstr("revoked 3m ago"));
}

TEST(IdentityCommandsTest, WhatStillLetsARevokedMachineInIsSaid) {
  v1::RevokeReply reply;
  reply.set_num_identities(1);
  reply.set_num_lives(1);
  EXPECT_EQ(RevocationText("box", reply), "box is revoked; 1 worker with this name ended\n");
  reply.set_num_identities(0);
  reply.set_num_lives(0);
  reply.add_ended_tokens("0a");
  reply.add_open_tokens("0b");
  EXPECT_EQ(RevocationText("box", reply),
            "box was already revoked; only a token that is made from now on lets it join; 0 "
            "workers with this name ended\n"
            "token 0a, with which it had joined, is revoked: no machine can join with it any more\n"
            "token 0b, with which it had joined or could join again, is still valid. Other "
            "machines, and this machine under another name, can join with it. To prevent that, run "
            "psctl token revoke 0b\n");
}

// A fake coordinator of a job whose only checkpoint is of round 4. It records the calls that it
// gets.
class Job final : public v1::AdminService::Service, public v1::AuthorityService::Service {
 public:
  Job() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(static_cast<v1::AdminService::Service*>(this));
    builder.RegisterService(static_cast<v1::AuthorityService::Service*>(this));
    server_ = builder.BuildAndStart();
  }
  ~Job() override { server_->Shutdown(); }

  ClusterClient Client() const {
    return ClusterClient(net::AddressList::Of(absl::StrCat("127.0.0.1:", port_)),
                         wire::TransportSecurity());
  }
  const std::vector<std::string>& asked() const { return asked_; }
  void Advertise(const std::string& address) { address_ = address; }

 private:
  grpc::Status RollBack(grpc::ServerContext*, const v1::RollBackRequest* request,
                        v1::RollBackReply* reply) override {
    asked_.push_back(absl::StrCat(request->only_check() ? "check " : "go back ", request->round()));
    if (request->round() < 4) return {grpc::StatusCode::NOT_FOUND, "the oldest is of round 4"};
    reply->set_path("/run/round-00000004");
    reply->set_rounds_undone(3);
    return grpc::Status::OK;
  }
  grpc::Status ListIdentities(grpc::ServerContext*, const v1::ListIdentitiesRequest*,
                              v1::ListIdentitiesReply* reply) override {
    for (const char* name : {"a", "b"}) reply->add_identities()->set_name(name);
    return grpc::Status::OK;
  }
  grpc::Status Revoke(grpc::ServerContext*, const v1::RevokeRequest* request,
                      v1::RevokeReply* reply) override {
    asked_.push_back(absl::StrCat("revoke ", request->name()));
    reply->set_num_identities(1);
    return grpc::Status::OK;
  }

  grpc::Status CreateToken(grpc::ServerContext*, const v1::CreateTokenRequest*,
                           v1::CreateTokenReply* reply) override {
    reply->set_token_id("71");
    reply->set_secret("5ec");
    reply->set_authority_sha256(std::string(64, 'a'));
    reply->set_address(address_);
    return grpc::Status::OK;
  }
  grpc::Status RevokeToken(grpc::ServerContext*, const v1::RevokeTokenRequest* request,
                           v1::RevokeTokenReply*) override {
    asked_.push_back(absl::StrCat("revoke token ", request->id()));
    return grpc::Status::OK;
  }

  std::vector<std::string> asked_;
  std::string address_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST(IdentityCommandsTest, NobodyIsRevokedIfTheJobCannotGoBackToBefore) {
  const Job job;
  ClusterClient client = job.Client();
  EXPECT_THAT(RevokeIdentities(client, {"a"}, false, 3),
              StatusIs(absl::StatusCode::kNotFound, AllOf(HasSubstr("no certificate is revoked"),
                                                          HasSubstr("the oldest is of round 4"),
                                                          HasSubstr("leave --since_round out"))));
  EXPECT_THAT(job.asked(), ElementsAre("check 3"));
}

TEST(IdentityCommandsTest, NobodyIsRevokedIfOneOfThemIsNotKnown) {
  const Job job;
  ClusterClient client = job.Client();
  EXPECT_THAT(RevokeIdentities(client, {"a", "c"}, false, 5),
              StatusIs(absl::StatusCode::kNotFound, AllOf(HasSubstr("no certificate is revoked"),
                                                          HasSubstr("no identity 'c'"))));
  EXPECT_THAT(job.asked(), ElementsAre());
}

TEST(IdentityCommandsTest, TheJobGoesBackOnceAllAreRevoked) {
  const Job job;
  ClusterClient client = job.Client();
  EXPECT_THAT(RevokeIdentities(client, {"a", "b"}, true, 5),
              IsOkAndHolds(AllOf(HasSubstr("b is revoked"), HasSubstr("3 rounds are undone"))));
  EXPECT_THAT(job.asked(), ElementsAre("check 5", "revoke a", "revoke b", "go back 5"));
}

TEST(IdentityCommandsTest, AServerWhoseNameIsNoAddressIsToldByTheFlagsThatNameOne) {
  Job job;
  ClusterClient client = job.Client();
  TokenOptions options;
  options.words = {"create"};
  for (const char* address : {"(none):50051", "my machine:50051", "m\u00fcller:50051"}) {
    job.Advertise(address);
    EXPECT_THAT(
        TokenText(client, options, absl::Now()).status(),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr(address), HasSubstr("--address"), HasSubstr("--advertise"))));
  }
  EXPECT_THAT(job.asked(), ElementsAre("revoke token 71", "revoke token 71", "revoke token 71"));
  options.address = "10.0.0.5:50051";
  EXPECT_THAT(TokenText(client, options, absl::Now()),
              IsOkAndHolds(HasSubstr("//10.0.0.5:50051/")));
  job.Advertise("box:50051");
  options.address = "";
  EXPECT_THAT(TokenText(client, options, absl::Now()), IsOkAndHolds(HasSubstr("//box:50051/")));
}

}  // namespace
}  // namespace lodestar::psctl
