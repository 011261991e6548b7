// SPDX-License-Identifier: Apache-2.0

#include "proto/enrollment.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "common/security/testing/test_authority.h"
#include "common/testing/status_matchers.h"

namespace lodestar::wire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr absl::Duration kShort = absl::Milliseconds(1);
const std::string kSecret = "0123456789abcdef";

// Listens on a port of this machine and accepts one connection.
class Door {
 public:
  Door() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  ~Door() { close(listener_); }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  int Accept() const { return accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC); }

 private:
  int listener_;
  int port_ = 0;
};

class EnrollmentTest : public ::testing::Test {
 protected:
  EnrollmentTest() {
    const security::CredentialFiles files =
        authority_.FilesFor({security::Role::kServer, "shard-0", "01"});
    own_ = security::ReadCredentials(files).value_or(security::Credentials());
    join_.servers = door_.address();
    join_.authority_sha256 =
        security::FingerprintOf(authority_.authority().certificate).value_or("");
    join_.token_id = "0a";
    join_.secret = kSecret;
  }

  // Enrols with the join string over a connection that ServeEnrollment() serves. Returns what the
  // machine got.
  absl::StatusOr<security::Credentials> EnrollWith(const EnrollmentAnswer& answer) {
    std::thread server([&] { served_ = ServeEnrollment(door_.Accept(), own_, kPatience, answer); });
    absl::StatusOr<security::Credentials> credentials =
        Enroll(join_, {security::Role::kWorker}, "box", kPatience);
    server.join();
    return credentials;
  }

  absl::StatusOr<v1::EnrollReply> Certify(const v1::EnrollRequest& request) {
    request_ = request;
    const absl::Time now = absl::Now();
    v1::EnrollReply reply;
    ASSIGN_OR_RETURN(
        *reply.mutable_certificate(),
        security::IssueCertificate(authority_.authority(), request.certificate_request(),
                                   {security::Role::kWorker, request.name(), "02"},
                                   {now, now + absl::Hours(1)}));
    reply.set_authority(authority_.authority().certificate);
    return reply;
  }

  const security::TestAuthority authority_;
  const Door door_;
  security::Credentials own_;
  security::JoinString join_;
  v1::EnrollRequest request_;
  absl::Status served_ = absl::UnknownError("not served");
};

TEST_F(EnrollmentTest, ASecretBecomesACertificate) {
  const auto credentials =
      EnrollWith([this](const v1::EnrollRequest& request) { return Certify(request); });
  ASSERT_OK(credentials);
  EXPECT_OK(served_);
  EXPECT_EQ(request_.secret(), kSecret);
  EXPECT_EQ(request_.token_id(), "0a");
  EXPECT_THAT(request_.fallback_name(), Not(HasSubstr(".")));
  EXPECT_OK(security::CheckKeyFits(credentials->certificate, credentials->key));
  EXPECT_OK(security::CheckIssued(credentials->certificate, authority_.authority().certificate,
                                  absl::Now()));
  EXPECT_EQ(credentials->authority, authority_.authority().certificate);
}

TEST_F(EnrollmentTest, ARefusalHasItsCodeAndText) {
  EXPECT_THAT(EnrollWith([](const v1::EnrollRequest&) {
                return absl::PermissionDeniedError("the token has expired");
              }),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       AllOf(HasSubstr(door_.address()), HasSubstr("the token has expired"))));
}

TEST_F(EnrollmentTest, AnotherAuthorityIsToldNothing) {
  join_.authority_sha256[0] = join_.authority_sha256[0] == '0' ? '1' : '0';
  bool was_asked = false;
  EXPECT_THAT(EnrollWith([&](const v1::EnrollRequest&) -> absl::StatusOr<v1::EnrollReply> {
                was_asked = true;
                return v1::EnrollReply();
              }),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       HasSubstr("another authority than the join string says")));
  EXPECT_FALSE(was_asked);
  EXPECT_THAT(served_, StatusIs(absl::StatusCode::kUnavailable)) << "nothing came";
}

TEST_F(EnrollmentTest, WhoOnlyShowsTheAuthoritysCertificateIsToldNothing) {
  const security::TestAuthority other;
  const auto liar =
      security::ReadCredentials(other.FilesFor({security::Role::kServer, "shard-0", "01"}));
  ASSERT_OK(liar);
  own_ = *liar;
  own_.authority = authority_.authority().certificate;
  EXPECT_THAT(EnrollWith([this](const v1::EnrollRequest& request) { return Certify(request); }),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("the secret was not sent")));
  EXPECT_EQ(request_.secret(), "");
}

TEST_F(EnrollmentTest, AServerOutOfItsTimeIsToldNothingAndAskedAgainLater) {
  const auto ended = security::ReadCredentials(
      authority_.FilesFor({security::Role::kServer, "shard-0", "01"}, -absl::Minutes(1)));
  ASSERT_OK(ended);
  own_ = *ended;
  EXPECT_THAT(EnrollWith([this](const v1::EnrollRequest& request) { return Certify(request); }),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr(" until "), HasSubstr("by the clock of this machine"))));
  EXPECT_EQ(request_.secret(), "");
}

TEST_F(EnrollmentTest, APeerThatIsNoServerIsToldNothing) {
  const auto worker =
      security::ReadCredentials(authority_.FilesFor({security::Role::kWorker, "box", "01"}));
  ASSERT_OK(worker);
  own_ = *worker;
  EXPECT_THAT(EnrollWith([this](const v1::EnrollRequest& request) { return Certify(request); }),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("the secret was not sent")));
  EXPECT_EQ(request_.secret(), "");
}

TEST_F(EnrollmentTest, SilenceAndOtherProtocolsEndInTime) {
  const auto serve_after = [this](absl::string_view sent, absl::Duration patience) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    EXPECT_EQ(write(ends[1], sent.data(), sent.size()), static_cast<ssize_t>(sent.size()));
    const absl::Status served = ServeEnrollment(
        ends[0], own_, patience, [](const v1::EnrollRequest&) { return v1::EnrollReply(); });
    close(ends[1]);
    return served;
  };
  EXPECT_THAT(serve_after("LODESTAR", kShort), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(serve_after("LODESTAR-ENROLL-9\nxxx", kPatience),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(serve_after(absl::StrCat(kEnrollmentPreamble, "GET / HTTP/1.1\r\n\r\n"), kPatience),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("TLS fails")));
  EXPECT_THAT(serve_after(kEnrollmentPreamble, kShort),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(EnrollmentTest, NobodyThereIsToldByAddress) {
  std::string closed;
  {
    const Door door;
    closed = door.address();
  }
  join_.servers = closed;
  EXPECT_THAT(Enroll(join_, {security::Role::kWorker}, "box", kPatience),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr(closed), HasSubstr("Connection refused"))));
  // If an address refuses, the next address is tried.
  join_.servers = absl::StrCat(closed, ",", door_.address());
  EXPECT_OK(EnrollWith([this](const v1::EnrollRequest& request) { return Certify(request); }));
}

// A process that was stopped with SIGSTOP does not answer, but its system accepts the connection.
TEST_F(EnrollmentTest, TellsAProcessThatMayBeStoppedFromAMachineThatIsAway) {
  EXPECT_THAT(Enroll(join_, {security::Role::kWorker}, "box", absl::Seconds(1)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr(door_.address()), HasSubstr("process"))));
}

// Returns the result of a greeting to a peer that then sends `bytes` and closes the connection.
absl::StatusOr<Greeting> GreetOneWhoSays(absl::string_view bytes) {
  const Door door;
  std::thread server([&] {
    const int connection = door.Accept();
    char greeting[4096];
    EXPECT_GT(recv(connection, greeting, sizeof(greeting), 0), 0);
    EXPECT_EQ(write(connection, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    close(connection);
  });
  absl::StatusOr<Greeting> greeting = Greet(door.address(), kPatience);
  server.join();
  return greeting;
}

TEST(GreetTest, OnlyAnAnswerThatIsNoTlsIsPlainText) {
  const absl::string_view settings("\0\0\0\4\0\0\0\0\0", 9);
  const absl::string_view refusal_of_tls("\x15\3\1\0\2\2\x46", 7);
  for (const absl::string_view plain :
       {settings, refusal_of_tls, absl::string_view("HTTP/1.1 400 Bad Request\r\n")}) {
    const auto greeting = GreetOneWhoSays(plain);
    ASSERT_OK(greeting);
    EXPECT_FALSE(greeting->is_tls);
  }
  const absl::string_view not_now("\x15\3\1\0\2\2\x50", 7);
  const auto starting = GreetOneWhoSays(not_now);
  ASSERT_OK(starting);
  EXPECT_TRUE(starting->is_tls);
  EXPECT_EQ(starting->certificate, "");
  const absl::string_view handshake_failure("\x15\3\1\0\2\2\x28", 7);
  for (const absl::string_view unclear :
       {absl::string_view(), refusal_of_tls.substr(0, 4), handshake_failure}) {
    EXPECT_THAT(GreetOneWhoSays(unclear).status(), StatusIs(absl::StatusCode::kUnavailable));
  }
}

TEST(GreetTest, AConnectionThatIsResetSaysNothing) {
  const Door door;
  std::thread server([&] {
    const int connection = door.Accept();
    const linger at_once{1, 0};
    setsockopt(connection, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    close(connection);
  });
  EXPECT_THAT(Greet(door.address(), kPatience).status(), StatusIs(absl::StatusCode::kUnavailable));
  server.join();
}

}  // namespace
}  // namespace lodestar::wire
