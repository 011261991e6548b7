// SPDX-License-Identifier: Apache-2.0

#include "proto/tls_doubts.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/security/testing/certificate_chain.h"
#include "common/security/testing/test_authority.h"
#include "common/testing/status_matchers.h"
#include "proto/authority_service.grpc.pb.h"
#include "proto/transport_security.h"

namespace lodestar::wire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const security::Identity kServer{security::Role::kServer, "shard-0", "01"};
const security::Identity kWorker{security::Role::kWorker, "box", "02"};

class TlsDoubtsTest : public ::testing::Test {
 protected:
  static security::Credentials Read(const security::CredentialFiles& files) {
    absl::StatusOr<security::Credentials> credentials = security::ReadCredentials(files);
    EXPECT_OK(credentials);
    return credentials.value_or(security::Credentials());
  }
  std::string Doubts(const security::CredentialFiles& own, const std::string& server) const {
    return TlsDoubts(Read(own), own, "host:1", server, absl::Now());
  }
  std::string CertificateOf(const security::TestAuthority& authority,
                            absl::Duration lifetime = absl::Hours(1)) const {
    return Read(authority.FilesFor(kServer, lifetime)).certificate;
  }

  const security::TestAuthority authority_;
};

TEST_F(TlsDoubtsTest, WhereAllIsWellThereAreNone) {
  const security::CredentialFiles own = authority_.FilesFor(kWorker);
  EXPECT_EQ(Doubts(own, CertificateOf(authority_)), "");
  EXPECT_EQ(Doubts(own, ""), "");
  // If a file has several authorities, it is enough that one of them has issued the certificate.
  security::Credentials several = Read(own);
  several.authority =
      absl::StrCat(security::TestAuthority().authority().certificate, several.authority);
  EXPECT_EQ(TlsDoubts(several, own, "host:1", CertificateOf(authority_), absl::Now()), "");
}

TEST_F(TlsDoubtsTest, AKeyOfAnotherCertificateIsNamed) {
  const security::CredentialFiles own = authority_.FilesFor(kWorker);
  security::Credentials mixed = Read(own);
  mixed.key = security::NewPrivateKey();
  EXPECT_THAT(TlsDoubts(mixed, own, "host:1", "", absl::Now()),
              AllOf(HasSubstr(own.certificate), HasSubstr(own.key)));
}

TEST_F(TlsDoubtsTest, AgeIsSaidOfBothSides) {
  const security::CredentialFiles own = authority_.FilesFor(kWorker, absl::Minutes(-1));
  const std::string ended = Doubts(own, CertificateOf(authority_));
  EXPECT_THAT(ended, AllOf(HasSubstr(absl::StrCat(own.certificate, " (worker box), expired at ")),
                           Not(HasSubstr("authority in")), Not(HasSubstr("server"))));
  const security::CredentialFiles fresh = authority_.FilesFor(kWorker);
  EXPECT_THAT(Doubts(fresh, CertificateOf(authority_, absl::Minutes(-1))),
              AllOf(HasSubstr("the server at host:1 (server shard-0) expired at "),
                    Not(HasSubstr("worker"))));
  // The clock of this machine is behind.
  EXPECT_THAT(TlsDoubts(Read(fresh), fresh, "", "", absl::Now() - absl::Hours(48)),
              HasSubstr("(worker box), is valid only from "));
}

TEST_F(TlsDoubtsTest, AuthoritiesThatDoNotFitAreSaid) {
  const security::CredentialFiles own = authority_.FilesFor(kWorker);
  const security::TestAuthority other;
  EXPECT_THAT(
      Doubts(own, CertificateOf(other)),
      AllOf(HasSubstr("the server at host:1 (server shard-0) is not signed by an authority in " +
                      own.authority),
            Not(HasSubstr("worker box"))));
  security::Credentials mixed = Read(own);
  mixed.certificate = Read(other.FilesFor(kWorker)).certificate;
  EXPECT_THAT(TlsDoubts(mixed, own, "host:1", CertificateOf(authority_), absl::Now()),
              AllOf(HasSubstr("(worker box), is not signed by an authority in " + own.authority),
                    Not(HasSubstr("server"))));
}

TEST_F(TlsDoubtsTest, CertificatesInBetweenRaiseNoDoubt) {
  security::CredentialFiles files = authority_.FilesFor(kServer);
  files.is_kept = false;
  security::Credentials own = Read(files);
  own.authority += security::kRootCertificate;
  const std::string chain =
      std::string(security::kLeafCertificate) + security::kIntermediateCertificate;
  EXPECT_EQ(TlsDoubts(own, files, "host:1", chain, absl::Now()), "");
  EXPECT_THAT(TlsDoubts(own, files, "host:1", security::kLeafCertificate, absl::Now()),
              HasSubstr("intermediate certificate"));
}

TEST_F(TlsDoubtsTest, TheLineHasTheTimeOfDay) {
  EXPECT_EQ(TlsDoubtsLine("it has ended", absl::UnixEpoch()),
            "what may be wrong: it has ended. It is 1970-01-01 00:00:00 UTC by the clock of this "
            "machine");
}

TEST_F(TlsDoubtsTest, TheFirstServerThatAnswersIsLookedAt) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(
      "127.0.0.1:0",
      TransportSecurity(security::TestAuthority().FilesFor(kServer))
          .MakeServerCredentials(
              [](const security::Identity&, absl::string_view) { return absl::OkStatus(); }),
      &port);
  int plain_port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &plain_port);
  v1::AuthorityService::CallbackService service;
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto find = [this](const std::string& servers) {
    return FindTlsDoubts(authority_.FilesFor(kWorker), servers, absl::Seconds(30));
  };
  EXPECT_THAT(find(absl::StrCat("127.0.0.1:1,127.0.0.1:", port)),
              HasSubstr(absl::StrCat("the server at 127.0.0.1:", port,
                                     " (server shard-0) is not signed by an authority in ")));
  EXPECT_EQ(find(absl::StrCat("127.0.0.1:", plain_port)),
            absl::StrCat("the server at 127.0.0.1:", plain_port, " does not speak TLS"));
  EXPECT_EQ(find("127.0.0.1:1"), "");
}

}  // namespace
}  // namespace lodestar::wire
