// SPDX-License-Identifier: Apache-2.0

#include "server/authority/certificate_authority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "common/runtime/file_io.h"
#include "common/runtime/time_text.h"
#include "common/security/secret_file.h"
#include "common/testing/status_matchers.h"

namespace lodestar::authority {
namespace {

thread_local int flock_error = 0;  // errno of the next calls of flock(); 0 means that it works

}  // namespace
}  // namespace lodestar::authority

// Takes the place of the C library's function, because no file system at hand lacks locks.
extern "C" int flock(int descriptor, int operation) {
  if (lodestar::authority::flock_error == 0) {
    return static_cast<int>(syscall(SYS_flock, descriptor, operation));
  }
  errno = lodestar::authority::flock_error;
  return -1;
}

namespace lodestar::authority {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class CertificateAuthorityTest : public ::testing::Test {
 protected:
  CertificateAuthorityTest()
      : folder_(::testing::TempDir() + "/authority-" + security::RandomHex(8)) {}

  std::unique_ptr<CertificateAuthority> Open() {
    auto authority =
        CertificateAuthority::Open({.folder = folder_}, {.now = [this] { return now_; }});
    EXPECT_OK(authority);
    return authority.ok() ? *std::move(authority) : nullptr;
  }
  absl::StatusOr<CertificateAuthority::Issued> Enroll(CertificateAuthority& authority,
                                                      const CertificateAuthority::NewToken& token,
                                                      const std::string& name) {
    TokenLedger::Enrolment enrolment;
    enrolment.token_id = token.id;
    enrolment.secret = token.secret;
    enrolment.name = name;
    return authority.Enroll(
        enrolment, security::MakeCertificateRequest(security::NewPrivateKey()).value_or(""));
  }

  const std::string folder_;
  absl::Time now_ = absl::Now();
};

TEST_F(CertificateAuthorityTest, IsMadeOnceAndItsKeyIsItsOwn) {
  const auto first = Open();
  EXPECT_EQ(Open()->sha256(), first->sha256());
  struct stat facts {};
  ASSERT_EQ(stat((folder_ + "/authority-key.pem").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600);
  ASSERT_EQ(chmod((folder_ + "/authority-key.pem").c_str(), 0644), 0);
  EXPECT_THAT(CertificateAuthority::Open({.folder = folder_}, {}),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("chmod 600")));
}

TEST_F(CertificateAuthorityTest, ATokenBecomesACertificateThatItVouchesFor) {
  const auto authority = Open();
  const auto token =
      authority->CreateToken({.role = security::Role::kWorker, .ttl = absl::Hours(1)});
  ASSERT_OK(token);
  const auto issued = Enroll(*authority, *token, "w0");
  ASSERT_OK(issued);
  EXPECT_OK(security::CheckIssued(issued->certificate, authority->certificate(), now_));
  const auto facts = security::FactsOf(issued->certificate);
  ASSERT_OK(facts);
  EXPECT_EQ(facts->identity, issued->identity);
  EXPECT_EQ(facts->identity.name, "w0");
  const auto renewed = authority->Renew(
      issued->identity, security::MakeCertificateRequest(security::NewPrivateKey()).value_or(""));
  ASSERT_OK(renewed);
  EXPECT_EQ(renewed->identity, issued->identity);
}

TEST_F(CertificateAuthorityTest, ARefusedRequestUsesNoToken) {
  const auto authority = Open();
  const auto token = authority->CreateToken({.ttl = absl::Hours(1), .max_uses = 1});
  ASSERT_OK(token);
  TokenLedger::Enrolment enrolment;
  enrolment.token_id = token->id;
  enrolment.secret = token->secret;
  enrolment.name = "w0";
  EXPECT_THAT(authority->Enroll(enrolment, "no request"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_OK(Enroll(*authority, *token, "w0"));
  EXPECT_THAT(Enroll(*authority, *token, "w1"), StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST_F(CertificateAuthorityTest, ProcessesThatShareTheFolderKnowOfEachOther) {
  const auto one = Open();
  const auto other = Open();
  const auto token = one->CreateToken({.ttl = absl::Hours(1)});
  ASSERT_OK(token);
  const auto issued = Enroll(*other, *token, "w0");
  ASSERT_OK(issued);
  EXPECT_OK(one->CheckNotRevoked(issued->identity));
  EXPECT_OK(other->Revoke("w0", "lost", false));
  now_ += absl::Seconds(1);
  EXPECT_THAT(one->CheckNotRevoked(issued->identity),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("worker w0 was revoked at")));
  EXPECT_THAT(one->Revoked(), ElementsAre(Pair(issued->identity.id, HasSubstr("(lost)"))));
}

// An open connection is valid until the end of the identity's newest certificate, not of the
// certificate with which it was opened.
TEST_F(CertificateAuthorityTest, AnIdentityHoldsUntilItsNewestCertificateEnds) {
  const auto authority = Open();
  const auto token = authority->CreateToken({.ttl = absl::Hours(1)});
  ASSERT_OK(token);
  const auto issued = Enroll(*authority, *token, "w0");
  ASSERT_OK(issued);
  const std::string request =
      security::MakeCertificateRequest(security::NewPrivateKey()).value_or("");
  now_ += absl::Hours(20);
  EXPECT_OK(authority->Renew(issued->identity, request));
  now_ += absl::Hours(23);
  EXPECT_OK(authority->CheckHolds(issued->identity));
  now_ += absl::Hours(1);
  EXPECT_THAT(authority->CheckHolds(issued->identity),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("worker w0 expired at")));
  EXPECT_OK(authority->CheckNotRevoked(issued->identity));
  EXPECT_THAT(authority->Renew(issued->identity, request),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("expired at")));
  EXPECT_OK(authority->Revoke("w0", "lost", false));
  EXPECT_THAT(authority->CheckHolds(issued->identity),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("was revoked at")));
}

TEST_F(CertificateAuthorityTest, RevocationsOutliveTheProcess) {
  auto authority = Open();
  const auto token = authority->CreateToken({.ttl = absl::Hours(1)});
  const auto issued = Enroll(*authority, *token, "w0");
  ASSERT_OK(issued);
  EXPECT_OK(authority->Revoke("w0", "lost", false));
  authority = Open();
  EXPECT_FALSE(authority->CheckNotRevoked(issued->identity).ok());
  EXPECT_FALSE(authority
                   ->Renew(issued->identity,
                           security::MakeCertificateRequest(security::NewPrivateKey()).value_or(""))
                   .ok());
}

TEST_F(CertificateAuthorityTest, OwnCredentialsAreKeptAndRenewedInTime) {
  const auto authority = Open();
  const std::string folder = folder_ + "/server";
  const auto first = authority->KeepOwn(folder, security::Role::kServer, "shard-0");
  ASSERT_OK(first);
  const auto certificate = [&] {
    return security::ReadCredentials(security::CredentialFilesIn(folder))
        .value_or(security::Credentials())
        .certificate;
  };
  const std::string before = certificate();
  EXPECT_EQ(
      authority->KeepOwn(folder, security::Role::kServer, "shard-0").value_or(security::Identity()),
      *first);
  EXPECT_EQ(certificate(), before);
  now_ += absl::Hours(13);
  EXPECT_EQ(
      authority->KeepOwn(folder, security::Role::kServer, "shard-0").value_or(security::Identity()),
      *first);
  EXPECT_NE(certificate(), before);
  EXPECT_OK(authority->Revoke("shard-0", "lost", false));
  const auto anew = authority->KeepOwn(folder, security::Role::kServer, "shard-0");
  ASSERT_OK(anew);
  EXPECT_NE(anew->id, first->id);
}

TEST_F(CertificateAuthorityTest, OwnCredentialsThatCannotBeRenewedAreNamedWithTheirEnd) {
  const auto authority = Open();
  const std::string folder = folder_ + "/server";
  ASSERT_OK(authority->KeepOwn(folder, security::Role::kServer, "server-0"));
  const auto ends = security::ValidityOf(
                        security::ReadCredentials(security::CredentialFilesIn(folder))->certificate)
                        ->until;
  now_ += absl::Hours(13);
  // A folder has the name of the file that would be written, so that writing fails as on a full
  // disk.
  const std::string in_the_way = absl::StrCat(folder_, "/ledger.json.tmp-", getpid());
  std::filesystem::create_directories(in_the_way + "/x");
  EXPECT_THAT(authority->KeepOwn(folder, security::Role::kServer, "server-0"),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(authority->TakeTrouble(),
              AllOf(HasSubstr("server-0"), HasSubstr(UtcText(ends)), HasSubstr("ledger.json")));
  std::filesystem::remove_all(in_the_way);
  EXPECT_OK(authority->KeepOwn(folder, security::Role::kServer, "server-0"));
}

TEST_F(CertificateAuthorityTest, OwnCredentialsAreIssuedAgainForHostsThatTheyLack) {
  const auto authority = Open();
  const std::string folder = folder_ + "/server";
  const auto certificate = [&] {
    return security::ReadCredentials(security::CredentialFilesIn(folder))
        .value_or(security::Credentials())
        .certificate;
  };
  const auto first = authority->KeepOwn(folder, security::Role::kServer, "server-0");
  ASSERT_OK(first);
  EXPECT_FALSE(security::IsForHosts(certificate(), {"box"}));
  EXPECT_EQ(authority->KeepOwn(folder, security::Role::kServer, "server-0", {"box", "10.0.0.1"})
                .value_or(security::Identity()),
            *first);
  EXPECT_TRUE(security::IsForHosts(certificate(), {"box", "10.0.0.1"}));
  const std::string before = certificate();
  EXPECT_OK(authority->KeepOwn(folder, security::Role::kServer, "server-0", {"box"}));
  EXPECT_EQ(certificate(), before);
}

TEST_F(CertificateAuthorityTest, MakesNoneWhileTheClockIsBeforeTheProgramsBuild) {
  const absl::Time built = now_;
  now_ = built - absl::Hours(1);
  const auto early = CertificateAuthority::Open({.folder = folder_},
                                                {.now = [this] { return now_; }, .built = built});
  EXPECT_THAT(early,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("the clock of this machine")));
  EXPECT_FALSE(std::filesystem::exists(folder_));
  now_ = built;
  EXPECT_NE(Open(), nullptr);
}

TEST_F(CertificateAuthorityTest, WhatAClockThatWasAheadHasMadeHoldsWhenItIsRightAgain) {
  const absl::Time right = now_;
  now_ = right + absl::Hours(24 * 1000);
  auto authority = Open();
  const std::string folder = folder_ + "/server";
  ASSERT_OK(authority->KeepOwn(folder, security::Role::kServer, "server-0"));
  const auto token = authority->CreateToken({.ttl = absl::Hours(1)});
  ASSERT_OK(token);
  now_ = right;
  authority = Open();
  const auto own = [&] {
    return security::ReadCredentials(security::CredentialFilesIn(folder))
        .value_or(security::Credentials())
        .certificate;
  };
  EXPECT_OK(security::CheckIssued(own(), authority->certificate(), right));
  ASSERT_OK(authority->KeepOwn(folder, security::Role::kServer, "server-0"));
  EXPECT_LE(security::ValidityOf(own())->until, right + absl::Hours(25))
      << "it is short-lived again";
  const auto issued = Enroll(*authority, *token, "w0");
  ASSERT_OK(issued);
  EXPECT_OK(security::CheckIssued(issued->certificate, authority->certificate(), right));
  EXPECT_OK(authority->CheckHolds(issued->identity));
}

TEST_F(CertificateAuthorityTest, AnAuthorityOutOfItsTimeIsNamedWithTheTimeOfTheClock) {
  Open();
  now_ += absl::Hours(24 * 4000);
  EXPECT_THAT(
      CertificateAuthority::Open({.folder = folder_}, {.now = [this] { return now_; }}),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("authority.pem expired at")));
  now_ = absl::FromUnixSeconds(1'500'000'000);  // 2017
  EXPECT_THAT(CertificateAuthority::Open({.folder = folder_}, {.now = [this] { return now_; },
                                                               .built = absl::InfinitePast()}),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("is valid only from 2020-01-01")));
}

TEST_F(CertificateAuthorityTest, BeginsNowForAClientThatRenewsByTheBeginning) {
  const auto authority = Open();
  const auto token = authority->CreateToken({.ttl = absl::Hours(1)});
  ASSERT_OK(token);
  const auto issued = Enroll(*authority, *token, "w0");
  ASSERT_OK(issued);
  EXPECT_LT(security::ValidityOf(issued->certificate)->from, now_ - absl::Hours(24 * 365));
  const auto renewed = authority->Renew(
      issued->identity, security::MakeCertificateRequest(security::NewPrivateKey()).value_or(""),
      CertificateAuthority::Beginning::kNow);
  ASSERT_OK(renewed);
  EXPECT_GE(security::ValidityOf(renewed->certificate)->from, now_ - absl::Minutes(6));
}

TEST_F(CertificateAuthorityTest, AClockThatWasAheadForgetsNoRevocation) {
  const auto authority = Open();
  const auto token = authority->CreateToken({.ttl = absl::Hours(1)});
  ASSERT_OK(token);
  const auto issued = Enroll(*authority, *token, "w0");
  ASSERT_OK(issued);
  ASSERT_OK(authority->Revoke("w0", "lost", false));
  now_ += absl::Hours(24 * 365);
  for (int i = 0; i < 5; ++i) {
    ASSERT_OK(authority->CreateToken({.ttl = absl::Seconds(1)}));
    now_ += absl::Hours(4);
  }
  EXPECT_THAT(authority->Revoked(), ElementsAre(Pair(issued->identity.id, HasSubstr("(lost)"))));
  now_ -= absl::Hours(24 * 365) + 5 * absl::Hours(4);
  EXPECT_FALSE(authority->CheckHolds(issued->identity).ok());
  // If a clock has leapt forward and stays ahead, the ledger accepts its time after a day.
  for (int i = 0; i < 4; ++i) {
    now_ += absl::Hours(24 * 8);
    ASSERT_OK(authority->CreateToken({.ttl = absl::Seconds(1)}));
  }
  EXPECT_THAT(authority->Revoked(), ::testing::IsEmpty());
}

TEST_F(CertificateAuthorityTest, ATokenThatIsShownIsKnownUntilItIsRevoked) {
  const auto authority = Open();
  const auto token =
      authority->CreateToken({.role = security::Role::kViewer, .ttl = absl::Hours(1)});
  ASSERT_OK(token);
  const auto identity = authority->IdentityByToken(token->id, token->secret);
  ASSERT_OK(identity);
  EXPECT_EQ(identity->role, security::Role::kViewer);
  EXPECT_FALSE(authority->IdentityByToken(token->id, token->secret + "0").ok());
  EXPECT_OK(authority->RevokeToken(token->id));
  EXPECT_FALSE(authority->IdentityByToken(token->id, token->secret).ok());
}

TEST_F(CertificateAuthorityTest, FileSystemWithoutLocksIsAccepted) {
  for (const int error : {ENOSYS, ENOLCK, EOPNOTSUPP}) {
    flock_error = error;
    const auto authority = Open();
    EXPECT_OK(authority->CreateToken({.role = security::Role::kViewer, .ttl = absl::Hours(1)}));
    flock_error = 0;
  }
}

TEST_F(CertificateAuthorityTest, NoOtherAuthorityTakesThePlaceOfOneWhoseKeyIsLost) {
  ASSERT_OK(Open()->KeepOwn(folder_ + "/own", security::Role::kServer, "server-0"));
  ASSERT_EQ(unlink((folder_ + "/authority-key.pem").c_str()), 0);
  const auto again = CertificateAuthority::Open({.folder = folder_}, {});
  EXPECT_THAT(again,
              StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr("authority-key.pem is missing"),
                                                          HasSubstr("Put its files back"))));
}

TEST_F(CertificateAuthorityTest, SaysWhatToDoAboutEachFileThatIsDamagedOrGone) {
  ASSERT_OK(Open()->KeepOwn(folder_ + "/own", security::Role::kServer, "server-0"));
  for (const char* const name : {"authority-key.pem", "authority.pem", "ledger.json"}) {
    const std::string path = absl::StrCat(folder_, "/", name);
    ASSERT_OK_AND_ASSIGN(const std::string whole, ReadWholeFile(path, 1 << 20));
    for (const bool is_gone : {false, true}) {
      is_gone ? static_cast<void>(unlink(path.c_str()))
              : security::WriteSecretFile(path, "").IgnoreError();
      EXPECT_THAT(CertificateAuthority::Open({.folder = folder_}, {}),
                  StatusIs(absl::StatusCode::kDataLoss,
                           AllOf(HasSubstr(name), HasSubstr("Put its files back"))));
    }
    ASSERT_OK(security::WriteSecretFile(path, whole));
  }
  EXPECT_OK(CertificateAuthority::Open({.folder = folder_}, {}));
}

TEST_F(CertificateAuthorityTest, ALedgerThatCannotBeWrittenIsNoFaultOfTheMachineThatJoins) {
  const auto authority = Open();
  EXPECT_EQ(authority->TakeTrouble(), "");
  // A folder has the name of the file that would be written, so that writing fails as on a full
  // disk.
  const std::string in_the_way = absl::StrCat(folder_, "/ledger.json.tmp-", getpid());
  std::filesystem::create_directories(in_the_way + "/x");
  EXPECT_THAT(authority->CreateToken({.role = security::Role::kWorker, .ttl = absl::Hours(1)}),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("ledger.json")));
  EXPECT_THAT(authority->TakeTrouble(), HasSubstr("ledger.json"));
  EXPECT_EQ(authority->TakeTrouble(), "");
  std::filesystem::remove_all(in_the_way);
  EXPECT_OK(authority->CreateToken({.role = security::Role::kWorker, .ttl = absl::Hours(1)}));
}

TEST_F(CertificateAuthorityTest, WhereNobodyHasJoinedTheKeyMayBeAnother) {
  Open();
  ASSERT_EQ(unlink((folder_ + "/authority-key.pem").c_str()), 0);
  ASSERT_OK(security::WriteSecretFile(folder_ + "/ledger.json",
                                      R"({"format_version": 1, "tokens": [], "identities": []})"));
  EXPECT_OK(CertificateAuthority::Open({.folder = folder_}, {}));
}

TEST_F(CertificateAuthorityTest, ADamagedLedgerIsNamedAndChangesNothing) {
  Open();
  ASSERT_OK(security::WriteSecretFile(folder_ + "/ledger.json", "{"));
  EXPECT_THAT(CertificateAuthority::Open({.folder = folder_}, {}),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("ledger.json: ")));
  EXPECT_THAT(
      CertificateAuthority::Open({.folder = folder_, .certificate_ttl = absl::Seconds(1)}, {}),
      StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace lodestar::authority
