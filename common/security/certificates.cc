// SPDX-License-Identifier: Apache-2.0

#include "common/security/certificates.h"

#include <openssl/crypto.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/net/host_port.h"
#include "common/runtime/check.h"
#include "common/runtime/status_macros.h"
#include "common/security/openssl_handles.h"

namespace lodestar::security {
namespace {

constexpr int kSerialBytes = 16;
constexpr size_t kMaxHostNameBytes = 253;  // limit of RFC 1035

void AddExtension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  LODESTAR_CHECK(extension != nullptr) << value << ": " << OpensslError();
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

void SetSubject(X509* certificate, absl::string_view common_name) {
  X509_NAME* const subject = X509_get_subject_name(certificate);
  const auto add = [subject](const char* field, absl::string_view text) {
    X509_NAME_add_entry_by_txt(subject, field, MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(text.data()),
                               static_cast<int>(text.size()), -1, 0);
  };
  add("O", "lodestar");
  add("CN", common_name);
}

OwnedCertificate NewCertificate(EVP_PKEY* key, const Validity& validity) {
  OwnedCertificate certificate(X509_new());
  X509_set_version(certificate.get(), X509_VERSION_3);
  unsigned char serial[kSerialBytes];
  LODESTAR_CHECK(RAND_bytes(serial, sizeof(serial)) == 1) << OpensslError();
  serial[0] &= 0x7f;  // serial numbers must be positive
  BIGNUM* const number = BN_bin2bn(serial, sizeof(serial), nullptr);
  BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate.get()));
  BN_free(number);
  ASN1_TIME_set(X509_getm_notBefore(certificate.get()), absl::ToTimeT(validity.from));
  ASN1_TIME_set(X509_getm_notAfter(certificate.get()), absl::ToTimeT(validity.until));
  X509_set_pubkey(certificate.get(), key);
  return certificate;
}

void Sign(X509* certificate, EVP_PKEY* key) {
  LODESTAR_CHECK(X509_sign(certificate, key, EVP_sha256()) != 0) << OpensslError();
}

absl::Time TimeOf(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTimeT(timegm(&parts));
}

Validity ValidityOf(X509* certificate) {
  return {TimeOf(X509_get0_notBefore(certificate)), TimeOf(X509_get0_notAfter(certificate))};
}

absl::StatusOr<OwnedRequest> RequestFromPem(const std::string& pem) {
  const OwnedBio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  OwnedRequest request(PEM_read_bio_X509_REQ(bio.get(), nullptr, nullptr, nullptr));
  if (request != nullptr) return request;
  return absl::InvalidArgumentError(
      absl::StrCat("the certificate request is not in PEM form: ", OpensslError()));
}

absl::StatusOr<Identity> IdentityOf(X509* certificate) {
  auto* const names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  absl::StatusOr<Identity> identity = absl::InvalidArgumentError(
      "the names in the certificate include no URI of the form spiffe://DOMAIN/ROLE/NAME; issue a "
      "certificate with such a name");
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* const uri = name->d.uniformResourceIdentifier;
    identity = IdentityFromUri({reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                                static_cast<size_t>(ASN1_STRING_length(uri))});
    if (identity.ok()) break;
  }
  GENERAL_NAMES_free(names);
  return identity;
}

}  // namespace

std::string RandomHex(int num_bytes) {
  std::string bytes(num_bytes, '\0');
  LODESTAR_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), num_bytes) == 1)
      << OpensslError();
  return absl::BytesToHexString(bytes);
}

std::string Sha256Hex(absl::string_view bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest), sizeof(digest)});
}

bool AreEqualSecrets(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string NewPrivateKey() {
  const OwnedKey key(EVP_EC_gen("P-256"));
  LODESTAR_CHECK(key != nullptr) << OpensslError();
  const OwnedBio bio(BIO_new(BIO_s_mem()));
  LODESTAR_CHECK(PEM_write_bio_PKCS8PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr,
                                               nullptr) == 1)
      << OpensslError();
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, size);
}

absl::StatusOr<std::string> MakeAuthority(const std::string& key, const Validity& validity) {
  ASSIGN_OR_RETURN(const OwnedKey own, KeyFromPem(key));
  const OwnedCertificate certificate = NewCertificate(own.get(), validity);
  SetSubject(certificate.get(), absl::StrCat("lodestar authority ", RandomHex(4)));
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate.get()));
  X509* const raw = certificate.get();
  AddExtension(raw, raw, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  AddExtension(raw, raw, NID_key_usage, "critical,keyCertSign,cRLSign");
  AddExtension(raw, raw, NID_subject_key_identifier, "hash");
  Sign(raw, own.get());
  return PemOf(raw);
}

absl::StatusOr<std::string> MakeCertificateRequest(const std::string& key) {
  ASSIGN_OR_RETURN(const OwnedKey own, KeyFromPem(key));
  const OwnedRequest request(X509_REQ_new());
  X509_REQ_set_pubkey(request.get(), own.get());
  LODESTAR_CHECK(X509_REQ_sign(request.get(), own.get(), EVP_sha256()) != 0) << OpensslError();
  const OwnedBio bio(BIO_new(BIO_s_mem()));
  LODESTAR_CHECK(PEM_write_bio_X509_REQ(bio.get(), request.get()) == 1) << OpensslError();
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, size);
}

absl::StatusOr<std::string> IssueCertificate(const Authority& authority, const std::string& request,
                                             const Identity& identity, const Validity& validity,
                                             const std::vector<std::string>& hosts) {
  RETURN_IF_ERROR(CheckIdentityName(identity.name));
  ASSIGN_OR_RETURN(const OwnedCertificate issuer,
                   CertificateFromPem("the authority", authority.certificate));
  ASSIGN_OR_RETURN(const OwnedKey issuer_key, KeyFromPem(authority.key));
  ASSIGN_OR_RETURN(const OwnedRequest asked, RequestFromPem(request));
  EVP_PKEY* const key = X509_REQ_get0_pubkey(asked.get());
  if (key == nullptr || X509_REQ_verify(asked.get(), key) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the certificate request is not signed by its own key: ", OpensslError()));
  }
  if (EVP_PKEY_get_base_id(key) != EVP_PKEY_EC || EVP_PKEY_get_bits(key) != 256) {
    return absl::InvalidArgumentError("the key in the certificate request is not a P-256 key");
  }
  const OwnedCertificate certificate = NewCertificate(key, validity);
  SetSubject(certificate.get(), TextOf(identity));
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer.get()));
  X509* const raw = certificate.get();
  AddExtension(raw, issuer.get(), NID_basic_constraints, "critical,CA:FALSE");
  AddExtension(raw, issuer.get(), NID_key_usage, "critical,digitalSignature");
  // A server also connects to other servers as their client.
  AddExtension(raw, issuer.get(), NID_ext_key_usage,
               identity.role == Role::kServer ? "serverAuth,clientAuth" : "clientAuth");
  AddExtension(raw, issuer.get(), NID_subject_key_identifier, "hash");
  AddExtension(raw, issuer.get(), NID_authority_key_identifier, "keyid");
  // A client in another language checks the host name of the server's certificate. It does not
  // check the role, as our programs do.
  std::string names = absl::StrCat("URI:", UriOf(identity));
  if (identity.role == Role::kServer) absl::StrAppend(&names, ",DNS:", kServerHostName);
  for (const std::string& host : hosts) {
    RETURN_IF_ERROR(CheckHostName("the host", host));
    if (identity.role == Role::kServer && host == kServerHostName) continue;
    absl::StrAppend(&names, net::IsAddress(host) ? ",IP:" : ",DNS:", host);
  }
  AddExtension(raw, issuer.get(), NID_subject_alt_name, names);
  Sign(raw, issuer_key.get());
  return PemOf(raw);
}

absl::Status CheckHostName(absl::string_view what, absl::string_view host) {
  const auto is_good = [](char c) { return absl::ascii_isalnum(c) || c == '-' || c == '.'; };
  if (net::IsAddress(std::string(host)) ||
      (!host.empty() && host.size() <= kMaxHostNameBytes && absl::ascii_isalnum(host.front()) &&
       absl::ascii_isalnum(host.back()) && std::all_of(host.begin(), host.end(), is_good))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": '", host,
                   "' is neither an IP address nor a host name. A host name has letters, digits, "
                   "'-' and '.', and its length in bytes is at most ",
                   kMaxHostNameBytes));
}

bool IsForHosts(const std::string& certificate, const std::vector<std::string>& hosts) {
  const absl::StatusOr<OwnedCertificate> parsed = CertificateFromPem("certificate", certificate);
  if (!parsed.ok()) return false;
  return std::all_of(hosts.begin(), hosts.end(), [&](const std::string& host) {
    return net::IsAddress(host)
               ? X509_check_ip_asc(parsed->get(), host.c_str(), 0) == 1
               : X509_check_host(parsed->get(), host.data(), host.size(), 0, nullptr) == 1;
  });
}

absl::StatusOr<std::string> FingerprintOf(const std::string& certificate) {
  ASSIGN_OR_RETURN(const OwnedCertificate parsed, CertificateFromPem("certificate", certificate));
  return FingerprintOf(parsed.get());
}

absl::StatusOr<CertificateFacts> FactsOf(const std::string& certificate) {
  ASSIGN_OR_RETURN(const OwnedCertificate parsed, CertificateFromPem("certificate", certificate));
  ASSIGN_OR_RETURN(Identity identity, IdentityOf(parsed.get()));
  return CertificateFacts{std::move(identity), ValidityOf(parsed.get())};
}

absl::StatusOr<Validity> ValidityOf(const std::string& certificate) {
  ASSIGN_OR_RETURN(const OwnedCertificate parsed, CertificateFromPem("certificate", certificate));
  return ValidityOf(parsed.get());
}

absl::Status CheckIssued(const std::string& certificate, const std::string& authority,
                         absl::Time now) {
  ASSIGN_OR_RETURN(const OwnedCertificate parsed, CertificateFromPem("certificate", certificate));
  ASSIGN_OR_RETURN(const OwnedCertificate issuer, CertificateFromPem("authority", authority));
  return CheckIssued(parsed.get(), issuer.get(), X509_PURPOSE_SSL_CLIENT, now);
}

bool IsSignedBy(const std::string& chain, const std::string& authorities) {
  const absl::StatusOr<std::vector<OwnedCertificate>> certificates =
      CertificatesFromPem("certificate", chain);
  const absl::StatusOr<std::vector<OwnedCertificate>> issuers =
      CertificatesFromPem("authority", authorities);
  if (!certificates.ok() || !issuers.ok()) return false;
  const OwnedStore store(X509_STORE_new());
  for (const OwnedCertificate& issuer : *issuers) {
    LODESTAR_CHECK(X509_STORE_add_cert(store.get(), issuer.get()) == 1) << OpensslError();
  }
  const OwnedCertificates between(sk_X509_new_null());
  for (const OwnedCertificate& certificate : *certificates) {
    LODESTAR_CHECK(sk_X509_push(between.get(), certificate.get()) > 0) << OpensslError();
  }
  const OwnedStoreContext context(X509_STORE_CTX_new());
  LODESTAR_CHECK(X509_STORE_CTX_init(context.get(), store.get(), certificates->front().get(),
                                     between.get()) == 1)
      << OpensslError();
  X509_VERIFY_PARAM_set_flags(X509_STORE_CTX_get0_param(context.get()), X509_V_FLAG_NO_CHECK_TIME);
  const bool is_signed = X509_verify_cert(context.get()) == 1;
  OpensslError();
  return is_signed;
}

absl::Status CheckPurposes(const std::string& certificate, Role role) {
  ASSIGN_OR_RETURN(const OwnedCertificate parsed, CertificateFromPem("certificate", certificate));
  const bool is_server = role == Role::kServer;
  if (X509_check_purpose(parsed.get(), X509_PURPOSE_SSL_CLIENT, 0) == 1 &&
      (!is_server || X509_check_purpose(parsed.get(), X509_PURPOSE_SSL_SERVER, 0) == 1)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the certificate of a ", RoleName(role), " lacks the extended key usage ",
                   is_server ? "serverAuth and clientAuth" : "clientAuth",
                   ", so other programs of the cluster would refuse it. Issue a certificate with ",
                   is_server ? "both usages" : "that usage"));
}

absl::Status CheckCertificates(const std::string& pem) {
  return CertificatesFromPem("in it", pem).status();
}

absl::Status CheckKeyFits(const std::string& certificate, const std::string& key) {
  ASSIGN_OR_RETURN(const OwnedCertificate parsed, CertificateFromPem("certificate", certificate));
  ASSIGN_OR_RETURN(const OwnedKey own, KeyFromPem(key));
  if (X509_check_private_key(parsed.get(), own.get()) == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the certificate and the private key do not belong together: ", OpensslError()));
}

}  // namespace lodestar::security
