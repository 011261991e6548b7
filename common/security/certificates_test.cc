// SPDX-License-Identifier: Apache-2.0

#include "common/security/certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>

#include "common/security/openssl_handles.h"
#include "common/security/testing/certificate_chain.h"
#include "common/testing/status_matchers.h"

namespace lodestar::security {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);
const Validity kYear{kNow - absl::Minutes(5), kNow + absl::Hours(24 * 365)};
const Validity kDay{kNow - absl::Minutes(5), kNow + absl::Hours(24)};
const Identity kWorker{Role::kWorker, "box", "0a1b"};

Authority NewAuthority() {
  Authority authority;
  authority.key = NewPrivateKey();
  const auto certificate = MakeAuthority(authority.key, kYear);
  EXPECT_OK(certificate);
  authority.certificate = certificate.value_or("");
  return authority;
}

std::string Issue(const Authority& authority, const std::string& key, const Identity& identity) {
  const auto request = MakeCertificateRequest(key);
  EXPECT_OK(request);
  const auto certificate = IssueCertificate(authority, *request, identity, kDay);
  EXPECT_OK(certificate);
  return certificate.value_or("");
}

TEST(CertificatesTest, AnAuthorityVouchesForWhomItHasIssuedOne) {
  const Authority authority = NewAuthority();
  const std::string key = NewPrivateKey();
  const std::string certificate = Issue(authority, key, kWorker);
  EXPECT_OK(CheckIssued(certificate, authority.certificate, kNow));
  EXPECT_OK(CheckKeyFits(certificate, key));
  const auto facts = FactsOf(certificate);
  ASSERT_OK(facts);
  EXPECT_EQ(facts->identity, kWorker);
  EXPECT_EQ(facts->validity.from, kDay.from);
  EXPECT_EQ(facts->validity.until, kDay.until);
}

TEST(CertificatesTest, ABrowserTakesItForTheHostsThatItNames) {
  const Authority authority = NewAuthority();
  const auto request = MakeCertificateRequest(NewPrivateKey());
  ASSERT_OK(request);
  const Identity server{Role::kServer, "server-0", "1"};
  const auto certificate =
      IssueCertificate(authority, *request, server, kDay, {"box.example.org", "10.0.0.1", "::1"});
  ASSERT_OK(certificate);
  EXPECT_TRUE(IsForHosts(*certificate, {"lodestar", "BOX.example.org", "10.0.0.1", "::1"}));
  EXPECT_TRUE(IsForHosts(*certificate, {}));
  EXPECT_FALSE(IsForHosts(*certificate, {"box.example.org", "other.example.org"}));
  EXPECT_FALSE(IsForHosts(*certificate, {"10.0.0.2"}));
  EXPECT_EQ(FactsOf(*certificate)->identity, server);
  // A text that is not one plain host name or address is refused. It could add other names to the
  // certificate.
  for (const char* host : {"", "a,DNS:b", "a b", "*.example.org", "-a", "a.", "URI:x", "a\nb"}) {
    EXPECT_FALSE(CheckHostName("--flag", host).ok()) << host;
    EXPECT_FALSE(IssueCertificate(authority, *request, server, kDay, {host}).ok()) << host;
  }
}

TEST(CertificatesTest, NobodyElseDoesNorForLonger) {
  const Authority authority = NewAuthority();
  const std::string certificate = Issue(authority, NewPrivateKey(), kWorker);
  EXPECT_THAT(CheckIssued(certificate, NewAuthority().certificate, kNow),
              StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(CheckIssued(certificate, authority.certificate, kDay.until + absl::Seconds(1)),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("expired")));
  EXPECT_THAT(CheckIssued(certificate, authority.certificate, kDay.from - absl::Seconds(1)),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("not yet valid")));
  EXPECT_THAT(CheckKeyFits(certificate, NewPrivateKey()),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(CertificatesTest, APeerIsNoAuthority) {
  const Authority authority = NewAuthority();
  Authority worker;
  worker.key = NewPrivateKey();
  worker.certificate = Issue(authority, worker.key, kWorker);
  const std::string forged = Issue(worker, NewPrivateKey(), {Role::kOperator, "me", "1"});
  EXPECT_FALSE(CheckIssued(forged, authority.certificate, kNow).ok());
  EXPECT_FALSE(CheckIssued(forged, worker.certificate, kNow).ok());
}

TEST(CertificatesTest, CertificatesInBetweenLeadToAnAuthority) {
  const std::string root = kRootCertificate;
  const std::string others = NewAuthority().certificate;
  const std::string whole = std::string(kLeafCertificate) + kIntermediateCertificate;
  EXPECT_TRUE(IsSignedBy(whole, root));
  EXPECT_TRUE(IsSignedBy(whole, others + root)) << "one of several authorities";
  EXPECT_TRUE(IsSignedBy(kIntermediateCertificate, root));
  EXPECT_FALSE(IsSignedBy(kLeafCertificate, root));
  EXPECT_FALSE(IsSignedBy(whole, others));
  EXPECT_FALSE(IsSignedBy("", root));
  EXPECT_FALSE(IsSignedBy(whole, "no certificate"));
}

TEST(CertificatesTest, SignaturesDoNotDependOnTheClock) {
  const Authority authority = NewAuthority();  // valid only at another time
  EXPECT_TRUE(IsSignedBy(Issue(authority, NewPrivateKey(), kWorker), authority.certificate));
}

TEST(CertificatesTest, ARequestIsSignedByItsOwnKey) {
  const Authority authority = NewAuthority();
  auto request = MakeCertificateRequest(NewPrivateKey());
  ASSERT_OK(request);
  for (const std::string& bad : {std::string(), std::string("garbage"), request->substr(0, 200)}) {
    EXPECT_THAT(IssueCertificate(authority, bad, kWorker, kDay),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  // A request in which any single character was changed is refused.
  const size_t begin = request->find('\n') + 1;
  const size_t end = request->find("-----END") - 1;
  for (size_t at = begin; at < end; at += 7) {
    std::string changed = *request;
    changed[at] = changed[at] == 'A' ? 'B' : 'A';
    EXPECT_FALSE(IssueCertificate(authority, changed, kWorker, kDay).ok()) << at;
  }
}

TEST(CertificatesTest, HashesAndSecrets) {
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(RandomHex(20).size(), 40u);
  EXPECT_NE(RandomHex(20), RandomHex(20));
  EXPECT_TRUE(AreEqualSecrets("ab", "ab"));
  EXPECT_FALSE(AreEqualSecrets("ab", "ac"));
  EXPECT_FALSE(AreEqualSecrets("ab", "abc"));
  const Authority authority = NewAuthority();
  const auto fingerprint = FingerprintOf(authority.certificate);
  ASSERT_OK(fingerprint);
  EXPECT_EQ(fingerprint->size(), 64u);
  EXPECT_NE(*fingerprint, *FingerprintOf(NewAuthority().certificate));
  EXPECT_FALSE(FingerprintOf("none").ok());
}

// Returns a private key that is encrypted with the passphrase "pass", in the form that openssl
// genpkey -aes256 writes (PKCS #8).
std::string EncryptedKey() {
  const OwnedKey key(EVP_EC_gen("P-256"));
  const OwnedBio bio(BIO_new(BIO_s_mem()));
  EXPECT_EQ(PEM_write_bio_PKCS8PrivateKey(bio.get(), key.get(), EVP_aes_256_cbc(), "pass", 4,
                                          nullptr, nullptr),
            1);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, size);
}

TEST(CertificatesTest, SaysThatAKeyIsEncrypted) {
  EXPECT_THAT(MakeCertificateRequest(EncryptedKey()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("openssl pkey")));
  EXPECT_THAT(MakeCertificateRequest("no key"),
              StatusIs(absl::StatusCode::kInvalidArgument, Not(HasSubstr("openssl pkey"))));
}

}  // namespace
}  // namespace lodestar::security
