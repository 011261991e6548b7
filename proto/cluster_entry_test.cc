// SPDX-License-Identifier: Apache-2.0

#include "proto/cluster_entry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/security/secret_file.h"
#include "common/security/testing/test_authority.h"
#include "common/testing/status_matchers.h"
#include "proto/authority_service.grpc.pb.h"
#include "proto/enrollment.h"
#include "proto/status_mapping.h"

namespace lodestar::wire {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const security::Identity kServer{security::Role::kServer, "shard-0", "01"};
const security::Identity kWorker{security::Role::kWorker, "box", "02"};

// Issues a certificate to every caller, for the time that the test sets.
class Renewals final : public v1::AuthorityService::CallbackService {
 public:
  explicit Renewals(const security::TestAuthority* authority) : authority_(*authority) {}

  grpc::ServerUnaryReactor* Renew(grpc::CallbackServerContext* context,
                                  const v1::RenewRequest* request, v1::RenewReply* reply) override {
    const auto caller = CallerOf(*context->auth_context());
    const absl::Time now = absl::Now();
    auto certificate =
        security::IssueCertificate(authority_.authority(), request->certificate_request(), **caller,
                                   {now - absl::Minutes(1), now + absl::Hours(24)});
    if (certificate.ok()) reply->set_certificate(*certificate);
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(certificate.status()));
    return reactor;
  }

 private:
  const security::TestAuthority& authority_;
};

TEST(ClusterEntryTest, PlainTextStaysOnThisMachine) {
  security::SecurityFlags flags;
  EXPECT_OK(CheckMayBePlain("coordinator", "127.0.0.1:1,[::1]:2,localhost:3", flags));
  EXPECT_THAT(CheckMayBePlain("coordinator", "127.0.0.1:1,10.0.0.1:2", flags),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("--coordinator=10.0.0.1:2"), HasSubstr("Give --join"))));
  flags.join_flag = "--upstream_join";
  EXPECT_THAT(
      CheckMayBePlain("upstream", "10.0.0.1:2", flags),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("--upstream=10.0.0.1:2"), HasSubstr("Give --upstream_join"))));
  flags.insecure = true;
  EXPECT_OK(CheckMayBePlain("coordinator", "10.0.0.1:2", flags));
}

TEST(ClusterEntryTest, OwnCertificatesAreTakenIfTheyFit) {
  const security::TestAuthority authority;
  security::SecurityFlags flags;
  flags.own = authority.FilesFor(kWorker);
  const auto entry = EnterCluster(flags, {security::Role::kWorker}, "", "", absl::Seconds(1));
  ASSERT_OK(entry);
  EXPECT_EQ(entry->files, flags.own);
  EXPECT_EQ(*entry->identity, kWorker);
  EXPECT_FALSE(entry->is_renewable);
  EXPECT_THAT(EnterCluster(flags, {security::Role::kOperator}, "", "", absl::Seconds(1)).status(),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       HasSubstr("is for worker box, but this program needs the role operator")));
}

TEST(ClusterEntryTest, WithoutAnythingThereIsPlainText) {
  const auto entry =
      EnterCluster(security::SecurityFlags(), {security::Role::kWorker}, "", "", absl::Seconds(1));
  ASSERT_OK(entry);
  EXPECT_FALSE(entry->files.has_value());
}

TEST(ClusterEntryTest, WhatAJoinStringHasBroughtIsUsedAgainWithoutAsking) {
  const security::TestAuthority authority;
  const std::string hash = security::FingerprintOf(authority.authority().certificate).value_or("");
  security::SecurityFlags flags;
  flags.state_dir = ::testing::TempDir() + "/cluster_entry_state";
  // No server listens at this address.
  flags.join = absl::StrCat("lodestar://127.0.0.1:1/L1", hash, ".0a.0b");
  EXPECT_THAT(EnterCluster(flags, {security::Role::kWorker}, "box", "", absl::Seconds(30)).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("127.0.0.1:1")));
  const auto credentials = security::ReadCredentials(authority.FilesFor(kWorker));
  ASSERT_OK(credentials);
  const std::string folder =
      absl::StrCat(flags.state_dir, "/joined/", hash.substr(0, 16), "/worker-box");
  ASSERT_OK(security::WriteCredentials(folder, *credentials));
  const auto entry = EnterCluster(flags, {security::Role::kWorker}, "box", "", absl::Seconds(30));
  ASSERT_OK(entry);
  EXPECT_EQ(*entry->identity, kWorker);
  EXPECT_EQ(entry->servers, "127.0.0.1:1");
  EXPECT_TRUE(entry->is_renewable);
}

TEST(ClusterEntryTest, ErrorsOfAJoinStringSayWhereItCameFrom) {
  security::SecurityFlags flags;
  flags.state_dir = ::testing::TempDir();
  const auto enter = [&flags] {
    return EnterCluster(flags, {security::Role::kWorker}, "box", "", absl::Seconds(30)).status();
  };
  const std::string line = absl::StrCat("lodestar://127.0.0.1:1/L1", std::string(64, 'a'), ".b.c");
  flags.join = line;
  EXPECT_THAT(enter(), StatusIs(absl::StatusCode::kUnavailable,
                                StartsWith("--join: cannot enrol at 127.0.0.1:1: ")));
  flags.is_join_from_environment = true;
  EXPECT_THAT(enter(), StatusIs(absl::StatusCode::kUnavailable,
                                StartsWith("$LODESTAR_JOIN: cannot enrol at 127.0.0.1:1: ")));
  flags.join = absl::StrCat(::testing::TempDir(), "/line-", security::RandomHex(4));
  ASSERT_OK(security::WriteSecretFile(flags.join, line));
  EXPECT_THAT(enter(),
              StatusIs(absl::StatusCode::kUnavailable,
                       StartsWith(absl::StrCat("$LODESTAR_JOIN=", flags.join, ": cannot enrol"))));
  flags.join = "lodestar://nowhere";
  EXPECT_THAT(enter(),
              StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("$LODESTAR_JOIN: ")));
}

// Server on a free port of this machine, with the given credentials.
class Listener {
 public:
  explicit Listener(const std::shared_ptr<grpc::ServerCredentials>& credentials) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", credentials, &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }
  static std::shared_ptr<grpc::ServerCredentials> Tls(const security::TestAuthority& authority) {
    return TransportSecurity(authority.FilesFor(kServer))
        .MakeServerCredentials(
            [](const security::Identity&, absl::string_view) { return absl::OkStatus(); });
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  int port_ = 0;
  v1::AuthorityService::CallbackService service_;
  std::unique_ptr<grpc::Server> server_;
};

class KeptCertificatesTest : public ::testing::Test {
 protected:
  KeptCertificatesTest() {
    flags_.state_dir = absl::StrCat(::testing::TempDir(), "/kept-", security::RandomHex(4));
  }
  // Writes credentials into the folder of a joined cluster.
  void Keep(const security::TestAuthority& authority, const std::string& cluster,
            absl::Duration lifetime = absl::Hours(1)) {
    const auto credentials = security::ReadCredentials(authority.FilesFor(kWorker, lifetime));
    ASSERT_OK(credentials);
    ASSERT_OK(security::WriteCredentials(FolderOf(cluster), *credentials));
  }
  std::string FolderOf(const std::string& cluster) const {
    return absl::StrCat(flags_.state_dir, "/joined/", cluster, "/worker-box");
  }
  absl::StatusOr<ClusterEntry> Enter(const std::string& servers) {
    return EnterCluster(flags_, {security::Role::kWorker}, "box", servers, absl::Seconds(30));
  }

  security::SecurityFlags flags_;
};

TEST_F(KeptCertificatesTest, TheOneOfTheClusterThatAnswersIsUsedWithoutAJoinString) {
  const security::TestAuthority authority;
  const security::TestAuthority other;
  Keep(other, "0000");
  Keep(authority, "1111");
  EXPECT_TRUE(KeepsCertificate(flags_, security::Role::kWorker, "box"));
  EXPECT_FALSE(KeepsCertificate(flags_, security::Role::kWorker, "elsewhere"));
  const Listener listener(Listener::Tls(authority));
  const std::string servers = absl::StrCat("127.0.0.1:1,", listener.address());
  const auto entry = Enter(servers);
  ASSERT_OK(entry);
  EXPECT_EQ(entry->files, security::CredentialFilesIn(FolderOf("1111")));
  EXPECT_EQ(*entry->identity, kWorker);
  EXPECT_EQ(entry->servers, servers);
  EXPECT_TRUE(entry->is_renewable);
}

TEST_F(KeptCertificatesTest, PlainTextOfThisMachineStaysPlain) {
  Keep(security::TestAuthority(), "1111");
  const Listener listener(grpc::InsecureServerCredentials());
  const auto entry = Enter(listener.address());
  ASSERT_OK(entry);
  EXPECT_FALSE(entry->files.has_value());
  EXPECT_THAT(Enter("127.0.0.1:1").status(), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(KeptCertificatesTest, WhyNoneWillDoIsSaid) {
  const security::TestAuthority authority;
  Keep(security::TestAuthority(), "0000");
  Keep(authority, "1111", -absl::Minutes(1));
  const Listener listener(Listener::Tls(authority));
  EXPECT_THAT(Enter(listener.address()).status(),
              StatusIs(absl::StatusCode::kUnauthenticated,
                       AllOf(HasSubstr("0000/worker-box is for another cluster"),
                             HasSubstr("1111/worker-box expired at"),
                             HasSubstr("psctl token create --role=worker"))));
}

TEST_F(KeptCertificatesTest, WhatEndsAtOnceIsNotSaidToHaveEnded) {
  const security::TestAuthority authority;
  Keep(authority, "1111", absl::Seconds(30));
  const Listener listener(Listener::Tls(authority));
  EXPECT_THAT(Enter(listener.address()).status(),
              StatusIs(absl::StatusCode::kUnauthenticated,
                       HasSubstr("1111/worker-box ends within a minute, at ")));
}

TEST_F(KeptCertificatesTest, WhyACertificateWasThrownAwayIsSaidAtTheNextStart) {
  const security::TestAuthority authority;
  Keep(authority, "1111");
  ThrowAwayCertificate(security::CredentialFilesIn(FolderOf("1111")),
                       "worker box was revoked at noon");
  EXPECT_FALSE(KeepsCertificate(flags_, security::Role::kWorker, "box"));
  EXPECT_THAT(LeftoversText(flags_, security::Role::kWorker, "box"),
              HasSubstr("1111/worker-box was thrown away: worker box was revoked at noon"));
  const Listener listener(Listener::Tls(authority));
  EXPECT_THAT(Enter(listener.address()).status(),
              StatusIs(absl::StatusCode::kUnauthenticated,
                       AllOf(HasSubstr("was thrown away: worker box was revoked at noon"),
                             HasSubstr("`psctl token create --role=worker --name=box`"))));
  Keep(authority, "1111");
  EXPECT_OK(Enter(listener.address()));
  EXPECT_EQ(LeftoversText(flags_, security::Role::kWorker, "box"), "");
}

TEST_F(KeptCertificatesTest, CertificatesUnderOtherNamesAreNamedWhereOneIsWanted) {
  const security::TestAuthority authority;
  Keep(authority, "1111");
  const Listener listener(Listener::Tls(authority));
  const auto enter = [this](const std::string& name, const std::string& server) {
    return EnterCluster(flags_, {security::Role::kWorker}, name, server, absl::Seconds(30));
  };
  for (const std::string name : {"", "crate"}) {
    EXPECT_THAT(
        enter(name, listener.address()).status(),
        StatusIs(absl::StatusCode::kUnauthenticated,
                 HasSubstr("1111/worker-box is for a program that was started with --name=box")));
  }
  EXPECT_EQ(LeftoversText(flags_, security::Role::kServer, ""), "") << "of another role";
  const Listener plain(grpc::InsecureServerCredentials());
  const auto entry = enter("crate", plain.address());
  ASSERT_OK(entry);
  EXPECT_FALSE(entry->files.has_value());
}

// Listens on a port of this machine, and calls `serve` for each connection.
class Port {
 public:
  explicit Port(std::function<void(int connection)> serve)
      : serve_(std::move(serve)), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
    thread_ = std::thread([this] {
      for (int connection; (connection = accept(listener_, nullptr, nullptr)) >= 0;) {
        serve_(connection);
      }
    });
  }
  ~Port() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }

  const std::string& address() const { return address_; }

 private:
  const std::function<void(int connection)> serve_;
  const int listener_;
  std::string address_;
  std::thread thread_;
};

// Answers like a TLS server that is starting.
void RefuseForNow(int connection) {
  char greeting[4096];
  recv(connection, greeting, sizeof(greeting), 0);
  constexpr absl::string_view kInternalError("\x15\3\1\0\2\2\x50", 7);
  EXPECT_GT(write(connection, kInternalError.data(), kInternalError.size()), 0);
  close(connection);
}

TEST_F(KeptCertificatesTest, WhoDoesNotShowItsCertificateIsTakenForTheOnlyClusterOrAskedAgain) {
  const Port server(&RefuseForNow);
  Keep(security::TestAuthority(), "1111");
  Keep(security::TestAuthority(), "2222", -absl::Minutes(1));
  const auto entry = Enter(server.address());
  ASSERT_OK(entry);
  EXPECT_EQ(entry->files, security::CredentialFilesIn(FolderOf("1111")));
  const security::TestAuthority other;
  Keep(other, "3333");
  EXPECT_THAT(Enter(server.address()).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr(server.address()), HasSubstr("1111/worker-box"),
                             HasSubstr("3333/worker-box"))));
  const Listener listener(Listener::Tls(other));
  const auto next = Enter(absl::StrCat(server.address(), ",", listener.address()));
  ASSERT_OK(next);
  EXPECT_EQ(next->files, security::CredentialFilesIn(FolderOf("3333")));
}

TEST_F(KeptCertificatesTest, AServerOutOfItsTimeIsNotTakenForAnotherCluster) {
  const security::TestAuthority authority;
  Keep(authority, "1111");
  const Listener listener(
      TransportSecurity(authority.FilesFor(kServer, -absl::Minutes(1)))
          .MakeServerCredentials(
              [](const security::Identity&, absl::string_view) { return absl::OkStatus(); }));
  EXPECT_THAT(
      Enter(listener.address()).status(),
      StatusIs(absl::StatusCode::kUnavailable,
               AllOf(HasSubstr(listener.address()), HasSubstr("by the clock of this machine"))));
}

TEST_F(KeptCertificatesTest, PlainTextIsForListsOfThisMachineOnly) {
  Keep(security::TestAuthority(), "1111");
  const Listener listener(grpc::InsecureServerCredentials());
  const auto entry = Enter(absl::StrCat("127.0.0.1:1,", listener.address()));
  ASSERT_OK(entry);
  EXPECT_FALSE(entry->files.has_value());
  EXPECT_THAT(EnterCluster(flags_, {security::Role::kWorker}, "box",
                           absl::StrCat("192.0.2.1:1,", listener.address()), absl::Seconds(1))
                  .status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr(listener.address() + " does not speak TLS"),
                             HasSubstr("another machine (192.0.2.1:1)"))));
}

TEST_F(KeptCertificatesTest, AServerOfAnotherClusterDoesNotEndTheSearch) {
  const security::TestAuthority authority;
  const security::TestAuthority unknown;
  Keep(authority, "1111");
  const Listener wrong(Listener::Tls(unknown));
  const Listener right(Listener::Tls(authority));
  const auto entry = Enter(absl::StrCat(wrong.address(), ",", right.address()));
  ASSERT_OK(entry);
  EXPECT_EQ(entry->files, security::CredentialFilesIn(FolderOf("1111")));
  EXPECT_THAT(Enter(wrong.address() + ",127.0.0.1:1").status(),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr(wrong.address())));
}

TEST_F(KeptCertificatesTest, TheCoordinatorRenewsItsOwnWhateverItsFolderIsCalled) {
  flags_.state_dir += "/joined/x";
  const security::TestAuthority authority;
  const auto credentials = security::ReadCredentials(authority.FilesFor(kWorker));
  ASSERT_OK(credentials);
  ASSERT_OK(security::WriteCredentials(flags_.state_dir + "/worker-box", *credentials));
  const Listener listener(Listener::Tls(authority));
  const auto entry = Enter(listener.address());
  ASSERT_OK(entry);
  EXPECT_FALSE(entry->is_renewable);
}

TEST(ClusterEntryTest, TheTokenBeforeIsForgottenBeforeTheCertificateOfAnotherIsThere) {
  const security::TestAuthority authority;
  const security::Identity operator_identity{security::Role::kOperator, "box", "02"};
  const auto own = security::ReadCredentials(authority.FilesFor(kServer));
  ASSERT_OK(own);
  const auto old = security::ReadCredentials(authority.FilesFor(operator_identity));
  ASSERT_OK(old);
  const std::string hash = security::FingerprintOf(authority.authority().certificate).value_or("");
  security::SecurityFlags flags;
  flags.state_dir = absl::StrCat(::testing::TempDir(), "/token-", security::RandomHex(4));
  const std::string folder =
      absl::StrCat(flags.state_dir, "/joined/", hash.substr(0, 16), "/operator-box");
  ASSERT_OK(security::WriteCredentials(folder, *old));
  // The link leads to a file that can be read but not written, so EnterCluster() cannot write the
  // token's id.
  std::filesystem::create_symlink("/proc/sys/kernel/ostype", folder + "/token");
  int num_enrolled = 0;
  const auto certify = [&](const v1::EnrollRequest& request) -> absl::StatusOr<v1::EnrollReply> {
    ++num_enrolled;
    const absl::Time now = absl::Now();
    v1::EnrollReply reply;
    ASSIGN_OR_RETURN(
        *reply.mutable_certificate(),
        security::IssueCertificate(authority.authority(), request.certificate_request(),
                                   operator_identity, {now, now + absl::Hours(1)}));
    reply.set_authority(authority.authority().certificate);
    return reply;
  };
  const Port server([&](int connection) {
    EXPECT_OK(ServeEnrollment(connection, *own, absl::Seconds(30), certify));
  });
  flags.join = absl::StrCat("lodestar://", server.address(), "/L1", hash, ".0a.0b");
  const auto enter = [&] {
    return EnterCluster(flags, {security::Role::kOperator}, "box", "", absl::Seconds(30)).status();
  };
  EXPECT_OK(enter());
  EXPECT_OK(enter());
  // A process that ends before it writes the token's id leaves the folder in this state.
  std::filesystem::remove(folder + "/token");
  EXPECT_OK(enter());
  EXPECT_EQ(num_enrolled, 1);
}

// Fixture with several machines that share one state folder and join a cluster with the same join
// string.
class SharedStateFolderTest : public ::testing::Test {
 protected:
  SharedStateFolderTest() : own_(security::ReadCredentials(authority_.FilesFor(kServer))) {
    const std::string hash =
        security::FingerprintOf(authority_.authority().certificate).value_or("");
    state_dir_ = absl::StrCat(::testing::TempDir(), "/shared-", security::RandomHex(4));
    cluster_ = absl::StrCat(state_dir_, "/joined/", hash.substr(0, 16));
    server_.emplace([this](int connection) {
      EXPECT_OK(ServeEnrollment(connection, *own_, absl::Seconds(30),
                                [this](const auto& request) { return Certify(request); }));
    });
    join_ = absl::StrCat("lodestar://", server_->address(), "/L1", hash, ".0a.0b");
  }

  absl::StatusOr<ClusterEntry> Enter(const std::string& host) {
    security::SecurityFlags flags;
    flags.state_dir = state_dir_;
    flags.host = host;
    flags.join = join_;
    return EnterCluster(flags, {security::Role::kWorker}, "", "", absl::Seconds(30));
  }

  absl::StatusOr<v1::EnrollReply> Certify(const v1::EnrollRequest& request) {
    const int number = ++num_enrolled_;
    names_.push_back(request.name());
    const absl::Time now = absl::Now();
    v1::EnrollReply reply;
    ASSIGN_OR_RETURN(
        *reply.mutable_certificate(),
        security::IssueCertificate(
            authority_.authority(), request.certificate_request(),
            {security::Role::kWorker, absl::StrCat("node-", number), absl::StrCat(number)},
            {now - absl::Minutes(1), now + absl::Hours(1)}));
    reply.set_authority(authority_.authority().certificate);
    return reply;
  }

  const security::TestAuthority authority_;
  const absl::StatusOr<security::Credentials> own_;
  std::string state_dir_;
  std::string cluster_;
  std::string join_;
  std::atomic<int> num_enrolled_ = 0;
  std::vector<std::string> names_;  // names that were asked for; used only on the thread of server_
  std::optional<Port> server_;
};

TEST_F(SharedStateFolderTest, EachHostHasAnIdentityOfItsOwnAndKeepsIt) {
  for (const int round : {1, 2}) {
    for (const int host : {1, 2, 3}) {
      const auto entry = Enter(absl::StrCat("n", host));
      ASSERT_OK(entry);
      EXPECT_EQ(entry->identity->name, absl::StrCat("node-", host)) << "round " << round;
      EXPECT_EQ(entry->files,
                security::CredentialFilesIn(absl::StrCat(cluster_, "/worker@n", host)));
    }
  }
  EXPECT_EQ(num_enrolled_, 3);
}

TEST_F(SharedStateFolderTest, ProcessesOfOneHostEnrolOnceTogether) {
  std::vector<std::thread> processes;
  for (int i = 0; i < 6; ++i) {
    processes.emplace_back([this] {
      const auto entry = Enter("n1");
      EXPECT_OK(entry);
      EXPECT_OK(security::CheckCredentials(*entry->files));
    });
  }
  for (std::thread& process : processes) process.join();
  EXPECT_EQ(num_enrolled_, 1);
}

TEST_F(SharedStateFolderTest, EnrolsAgainIfKeyAndCertificateDoNotBelongTogether) {
  const auto entry = Enter("n1");
  ASSERT_OK(entry);
  ASSERT_OK(security::WriteSecretFile(entry->files->key, security::NewPrivateKey()));
  EXPECT_FALSE(security::CheckCredentials(*entry->files).ok());
  const auto again = Enter("n1");
  ASSERT_OK(again);
  EXPECT_EQ(again->identity->name, "node-2");
  EXPECT_OK(security::CheckCredentials(*again->files));
}

TEST_F(SharedStateFolderTest, TheFirstHostTakesTheFolderOfAnOlderRelease) {
  const auto kept = security::ReadCredentials(authority_.FilesFor(kWorker));
  ASSERT_OK(kept);
  ASSERT_OK(security::WriteCredentials(cluster_ + "/worker", *kept));
  const auto first = Enter("n1");
  ASSERT_OK(first);
  EXPECT_EQ(*first->identity, kWorker);
  EXPECT_OK(security::CheckCredentials(security::CredentialFilesIn(cluster_ + "/worker")))
      << "for older programs";
  const auto second = Enter("n2");
  ASSERT_OK(second);
  EXPECT_EQ(second->identity->name, "node-1");
}

TEST_F(SharedStateFolderTest, AMachineThatHasSleptEnrolsAgainUnderItsName) {
  const auto entry = Enter("n1");
  ASSERT_OK(entry);
  security::Credentials ended = *security::ReadCredentials(*entry->files);
  const absl::Time now = absl::Now();
  ended.certificate = security::IssueCertificate(
                          authority_.authority(), *security::MakeCertificateRequest(ended.key),
                          *entry->identity, {now - absl::Hours(2), now - absl::Hours(1)})
                          .value_or("");
  ASSERT_OK(security::WriteCredentials(absl::StrCat(cluster_, "/worker@n1"), ended));
  CredentialRenewer renewer(*entry->files, "127.0.0.1:1", entry->enrol_again);
  EXPECT_OK(renewer.RenewOrEnrol());
  const auto facts = security::CheckCredentials(*entry->files);
  ASSERT_OK(facts);
  EXPECT_GT(facts->validity.until, now);
  EXPECT_THAT(names_, ::testing::ElementsAre("", entry->identity->name));
  CredentialRenewer without(*entry->files, "127.0.0.1:1");
  EXPECT_THAT(without.RenewOrEnrol(), StatusIs(absl::StatusCode::kUnavailable))
      << "what still holds is of use, and nobody answers";
  ASSERT_OK(security::WriteCredentials(absl::StrCat(cluster_, "/worker@n1"), ended));
  EXPECT_THAT(without.RenewOrEnrol(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("expired at")));
}

TEST_F(SharedStateFolderTest, EnrolmentThatIsRefusedIsTriedAgainWithTheNewJoinString) {
  security::SecurityFlags flags;
  flags.state_dir = state_dir_;
  flags.join = absl::StrCat(::testing::TempDir(), "/join-", security::RandomHex(4));
  std::vector<std::string> tokens;
  const Port server([&](int connection) {
    ServeEnrollment(connection, *own_, absl::Seconds(30),
                    [&](const v1::EnrollRequest& request) -> absl::StatusOr<v1::EnrollReply> {
                      tokens.push_back(request.token_id());
                      if (tokens.size() == 1 || tokens.back() == "0c") return Certify(request);
                      return absl::PermissionDeniedError("the token is used up");
                    })
        .IgnoreError();
  });
  const auto line = [&](const security::TestAuthority& authority, const std::string& token) {
    return absl::StrCat("lodestar://", server.address(), "/L1",
                        security::FingerprintOf(authority.authority().certificate).value_or(""),
                        ".", token, ".0b");
  };
  ASSERT_OK(security::WriteSecretFile(flags.join, line(authority_, "0a")));
  const auto entry = EnterCluster(flags, {security::Role::kWorker}, "", "", absl::Seconds(30));
  ASSERT_OK(entry);
  ASSERT_OK(security::WriteSecretFile(entry->files->key, security::NewPrivateKey()));
  const auto is_refused =
      StatusIs(absl::StatusCode::kPermissionDenied, StartsWith("--join=" + flags.join));
  EXPECT_THAT(entry->enrol_again(), is_refused);
  ASSERT_OK(security::WriteSecretFile(flags.join, "lodestar://nowhere"));
  EXPECT_THAT(entry->enrol_again(), is_refused) << "the string that was read before is used";
  ASSERT_OK(security::WriteSecretFile(flags.join, line(security::TestAuthority(), "0c")));
  EXPECT_THAT(entry->enrol_again(), is_refused) << "the new string is for another cluster";
  ASSERT_OK(security::WriteSecretFile(flags.join, line(authority_, "0c")));
  EXPECT_OK(entry->enrol_again());
  EXPECT_OK(security::CheckCredentials(*entry->files));
  EXPECT_THAT(tokens, ::testing::ElementsAre("0a", "0a", "0a", "0a", "0c"));
}

TEST(ClusterEntryTest, RenewalIsDueAfterHalfOfTheTimeAndSoonAfterAClockThatWasAhead) {
  const absl::Time came = absl::FromUnixSeconds(1'800'000'000);
  const auto due = [came](absl::Duration rest, absl::Duration age) {
    return RenewalDue(came, came + rest, came + age) - came;
  };
  EXPECT_EQ(due(absl::Hours(10), absl::Hours(1)), absl::Hours(5));
  EXPECT_EQ(due(absl::Hours(24), absl::Hours(1)), absl::Hours(12));
  EXPECT_EQ(due(absl::Hours(24 * 1000), absl::Hours(1)), absl::Hours(12));
  // By its own time stamp, the file was written in the future. So the certificate is renewed now.
  EXPECT_EQ(due(absl::Hours(24), -absl::Hours(100)), -absl::Hours(100));
}

TEST(ClusterEntryTest, ACertificateIsRenewedWhereItIs) {
  const security::TestAuthority authority;
  Renewals renewals(&authority);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(
      "127.0.0.1:0",
      TransportSecurity(authority.FilesFor(kServer))
          .MakeServerCredentials(
              [](const security::Identity&, absl::string_view) { return absl::OkStatus(); }),
      &port);
  builder.RegisterService(&renewals);
  const auto server = builder.BuildAndStart();
  const security::CredentialFiles files = authority.FilesFor(kWorker);
  const auto before = security::CheckCredentials(files);
  ASSERT_OK(before);
  {
    CredentialRenewer renewer(files, absl::StrCat("127.0.0.1:1,127.0.0.1:", port));
    EXPECT_OK(renewer.Renew());
  }
  const auto after = security::CheckCredentials(files);
  ASSERT_OK(after);
  EXPECT_EQ(after->identity, before->identity);
  EXPECT_GT(after->validity.until, before->validity.until);
}

}  // namespace
}  // namespace lodestar::wire
