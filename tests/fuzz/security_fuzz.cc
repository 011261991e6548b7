// SPDX-License-Identifier: Apache-2.0

// Fuzzes everything that decides about permissions: tokens, join strings, identities, certificates
// and certificate requests. Also fuzzes texts and addresses of peers.

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "common/net/address_list.h"
#include "common/net/host_port.h"
#include "common/runtime/peer_text.h"
#include "common/security/certificates.h"
#include "common/security/identity.h"
#include "common/security/join_string.h"
#include "server/authority/token_ledger.h"
#include "tests/fuzz/fuzz_target.h"

namespace lodestar::fuzz {
namespace {

using Seeds = std::vector<std::string>;

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

const std::string& SomeKey() {
  static const std::string* const key = new std::string(security::NewPrivateKey());
  return *key;
}

security::Validity SomeValidity() { return {kNow, kNow + absl::Hours(1000)}; }

const security::Authority& SomeAuthority() {
  static const security::Authority* const authority =
      new security::Authority{*security::MakeAuthority(SomeKey(), SomeValidity()), SomeKey()};
  return *authority;
}

authority::TokenLedger::Enrolment EnrolmentWith(const std::string& token_id,
                                                const std::string& name) {
  authority::TokenLedger::Enrolment enrolment;
  enrolment.token_id = token_id;
  enrolment.secret = "0123456789abcdef";
  enrolment.name = name;
  enrolment.fallback_name = "machine";
  enrolment.identity_id = "1b";
  enrolment.until = kNow + absl::Hours(3);
  return enrolment;
}

void ReadLedger(absl::string_view bytes) {
  absl::StatusOr<authority::TokenLedger> ledger = authority::TokenLedger::FromJson(bytes);
  if (!ledger.ok()) return Refuse(ledger.status());
  Accept();
  const std::string again = ledger->ToJson();
  absl::StatusOr<authority::TokenLedger> back = authority::TokenLedger::FromJson(again);
  LODESTAR_CHECK(back.ok()) << back.status() << " of " << again;
  LODESTAR_CHECK(back->ToJson() == again) << again << " became " << back->ToJson();
  // The ledger can be used.
  for (const auto& [id, token] : back->tokens()) {
    const absl::StatusOr<authority::TokenLedger::Redeemed> redeemed =
        ledger->Redeem(EnrolmentWith(id, "box"), kNow);
    if (!redeemed.ok()) Refuse(redeemed.status());
  }
  for (const auto& [id, record] : back->identities()) {
    const absl::Status extended = ledger->Extend(record.identity, kNow + absl::Hours(1), kNow);
    if (!extended.ok()) Refuse(extended);
  }
}

void ReadJoinLine(absl::string_view bytes) {
  const absl::StatusOr<security::JoinString> join = security::ParseJoinString("--join", bytes);
  if (!join.ok()) return Refuse(join.status());
  Accept();
  const absl::StatusOr<security::JoinString> back =
      security::ParseJoinString("--join", join->ToString());
  LODESTAR_CHECK(back.ok()) << back.status();
  LODESTAR_CHECK(back->ToString() == join->ToString()) << join->ToString();
  LODESTAR_CHECK(back->servers == join->servers && back->token_id == join->token_id &&
                 back->secret == join->secret && back->authority_sha256 == join->authority_sha256);
}

void ReadUri(absl::string_view bytes) {
  const absl::StatusOr<security::Identity> identity = security::IdentityFromUri(bytes);
  if (!identity.ok()) return Refuse(identity.status());
  Accept();
  const absl::StatusOr<security::Identity> back =
      security::IdentityFromUri(security::UriOf(*identity));
  LODESTAR_CHECK(back.ok() && *back == *identity) << bytes;
  LODESTAR_CHECK(security::CheckIdentityName(identity->name).ok()) << bytes;
  LODESTAR_CHECK(PeerText(security::TextOf(*identity), 1000) == security::TextOf(*identity))
      << bytes;
}

std::string PemOf(absl::string_view label, absl::string_view der) {
  constexpr size_t kLineBytes = 64;
  const std::string text = absl::Base64Escape(der);
  std::string lines;
  for (size_t at = 0; at < text.size(); at += kLineBytes) {
    absl::StrAppend(&lines, text.substr(at, kLineBytes), "\n");
  }
  return absl::StrCat("-----BEGIN ", label, "-----\n", lines, "-----END ", label, "-----\n");
}

std::string DerOf(absl::string_view pem) {
  const size_t begin = pem.find('\n') + 1;
  std::string der;
  LODESTAR_CHECK(absl::Base64Unescape(
      absl::StrReplaceAll(pem.substr(begin, pem.find("-----END") - begin), {{"\n", ""}}), &der));
  return der;
}

void CheckRequest(const std::string& request) {
  const security::Identity identity = {security::Role::kWorker, "box", "02"};
  const absl::StatusOr<std::string> certificate =
      security::IssueCertificate(SomeAuthority(), request, identity, SomeValidity());
  if (!certificate.ok()) return Refuse(certificate.status());
  Accept();
  // Only the key of the request may have an effect.
  const absl::StatusOr<security::CertificateFacts> facts = security::FactsOf(*certificate);
  LODESTAR_CHECK(facts.ok()) << facts.status();
  LODESTAR_CHECK(facts->identity == identity);
  LODESTAR_CHECK(facts->validity.until <= SomeValidity().until);
  LODESTAR_CHECK(
      security::CheckIssued(*certificate, SomeAuthority().certificate, kNow + absl::Hours(1)).ok());
}

void CheckCertificate(const std::string& certificate) {
  const absl::StatusOr<security::CertificateFacts> facts = security::FactsOf(certificate);
  if (const auto print = security::FingerprintOf(certificate); !print.ok()) Refuse(print.status());
  if (const auto validity = security::ValidityOf(certificate); !validity.ok())
    Refuse(validity.status());
  const absl::Status issued =
      security::CheckIssued(certificate, SomeAuthority().certificate, kNow + absl::Hours(1));
  if (!issued.ok()) Refuse(issued);
  const absl::Status fits = security::CheckKeyFits(certificate, SomeKey());
  if (!fits.ok()) Refuse(fits);
  if (!facts.ok()) return Refuse(facts.status());
  Accept();
  LODESTAR_CHECK(security::CheckIdentityName(facts->identity.name).ok()) << facts->identity.name;
}

void ReadRequest(absl::string_view bytes) { CheckRequest(std::string(bytes)); }
void ReadCertificate(absl::string_view bytes) { CheckCertificate(std::string(bytes)); }
// The input is the DER inside the PEM armour, so that every changed byte changes the structure.
void ReadRequestDer(absl::string_view bytes) { CheckRequest(PemOf("CERTIFICATE REQUEST", bytes)); }
void ReadCertificateDer(absl::string_view bytes) { CheckCertificate(PemOf("CERTIFICATE", bytes)); }

void ReadAddresses(absl::string_view bytes) {
  const absl::Status one = net::CheckPeerAddress("a server", bytes);
  if (!one.ok()) Refuse(one);
  const absl::StatusOr<net::AddressList> addresses = net::AddressList::Parse("coordinator", bytes);
  if (!addresses.ok()) return Refuse(addresses.status());
  Accept();
  const absl::StatusOr<net::AddressList> back = net::AddressList::Parse(
      "coordinator", absl::StrReplaceAll(addresses->ToString(), {{", ", ","}}));
  LODESTAR_CHECK(back.ok() && back->ToString() == addresses->ToString()) << bytes;
}

void ReadText(absl::string_view bytes) {
  Accept();
  const size_t max_bytes = TakeByte(bytes);
  const std::string text = PeerText(bytes, max_bytes);
  LODESTAR_CHECK(PeerText(text, text.size()) == text) << text;
  for (const char byte : text) LODESTAR_CHECK(!absl::ascii_iscntrl(byte)) << text;
}

Seeds LedgerSeeds() {
  authority::TokenLedger ledger;
  LODESTAR_CHECK(ledger
                     .Create({security::Role::kWorker, absl::Hours(2), 3, "box"}, "0a",
                             security::Sha256Hex("0123456789abcdef"), kNow)
                     .ok());
  LODESTAR_CHECK(ledger.Redeem(EnrolmentWith("0a", ""), kNow).ok());
  LODESTAR_CHECK(
      ledger.Note({security::Role::kServer, "shard-0", "2c"}, kNow + absl::Hours(3), kNow).ok());
  LODESTAR_CHECK(ledger.Revoke("box", "it was lost", /*with_tokens=*/false, kNow).ok());
  return {ledger.ToJson()};
}

Seeds JoinSeeds() {
  const security::JoinString join = {"server1:50051,[::1]:50052", std::string(64, 'a'), "0a",
                                     "0123456789abcdef0123456789abcdef"};
  return {join.ToString()};
}

Seeds UriSeeds() {
  return {security::UriOf({security::Role::kWorker, "gpu-box", "0a1b"}),
          "spiffe://example.org/server/shard-0"};
}

std::string SomeRequest() { return *security::MakeCertificateRequest(SomeKey()); }
std::string SomeCertificate() {
  return *security::IssueCertificate(SomeAuthority(), SomeRequest(),
                                     {security::Role::kServer, "shard-0", "01"}, SomeValidity());
}

Seeds RequestSeeds() { return {SomeRequest()}; }
Seeds RequestDerSeeds() { return {DerOf(SomeRequest())}; }
Seeds CertificateSeeds() { return {SomeCertificate()}; }
Seeds CertificateDerSeeds() { return {DerOf(SomeCertificate())}; }
Seeds AddressSeeds() { return {"a:1", "server1:50051,127.0.0.1:50052,[::1]:50053"}; }
Seeds TextSeeds() { return {"\x20gpu-box", "\x40\x1b[31mred\n\xe2\x80\xae\xff\xe2\x82\xac"}; }

}  // namespace

absl::Span<const Case> Cases() {
  static constexpr Case kCases[] = {
      {"ledger", ReadLedger, LedgerSeeds},
      {"join_string", ReadJoinLine, JoinSeeds},
      {"uri", ReadUri, UriSeeds},
      {"request", ReadRequest, RequestSeeds},
      {"request_der", ReadRequestDer, RequestDerSeeds},
      {"certificate", ReadCertificate, CertificateSeeds},
      {"certificate_der", ReadCertificateDer, CertificateDerSeeds},
      {"addresses", ReadAddresses, AddressSeeds},
      {"text", ReadText, TextSeeds},
  };
  return kCases;
}

}  // namespace lodestar::fuzz
