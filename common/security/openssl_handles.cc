// SPDX-License-Identifier: Apache-2.0

#include "common/security/openssl_handles.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/runtime/check.h"

namespace lodestar::security {

std::string OpensslError() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (code == 0) return "OpenSSL gives no reason";
  char text[256];
  ERR_error_string_n(code, text, sizeof(text));
  return text;
}

void ExitUnlessOpensslWorks(absl::string_view program) {
  unsigned char byte = 0;
  if (RAND_bytes(&byte, 1) == 1 && OwnedSslContext(SSL_CTX_new(TLS_method())) != nullptr) return;
  const char* const file = std::getenv("OPENSSL_CONF");
  const std::string text = absl::StrCat(
      program, ": OpenSSL cannot encrypt (", OpensslError(), "). Its configuration is ",
      file == nullptr ? "openssl.cnf in "
                      : absl::StrCat("OPENSSL_CONF=", file, "; without that variable it is in "),
      OpenSSL_version(OPENSSL_DIR),
      ". Activate the default provider in it, or set OPENSSL_CONF to another file\n");
  std::fputs(text.c_str(), stderr);
  constexpr int kExitFailed = 1;
  std::_Exit(kExitFailed);
}

absl::StatusOr<OwnedKey> KeyFromPem(const std::string& pem) {
  const OwnedBio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  // OpenSSL calls `ask` for the passphrase of an encrypted key. There is no terminal to type a
  // passphrase, so `ask` returns an error.
  bool is_encrypted = false;
  const auto ask = [](char*, int, int, void* asked) {
    *static_cast<bool*>(asked) = true;
    return -1;
  };
  OwnedKey key(PEM_read_bio_PrivateKey(bio.get(), nullptr, ask, &is_encrypted));
  if (key != nullptr) return key;
  if (is_encrypted) {
    ERR_clear_error();
    return absl::InvalidArgumentError(
        "the private key is encrypted, and Lodestar cannot ask for its passphrase. Decrypt it with "
        "openssl pkey -in KEY -out NEW and chmod 600 NEW, and give NEW");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no private key in PEM form: ", OpensslError()));
}

absl::StatusOr<OwnedCertificate> CertificateFromPem(absl::string_view what,
                                                    const std::string& pem) {
  const OwnedBio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  OwnedCertificate certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  if (certificate != nullptr) return certificate;
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": there is no certificate in PEM form: ", OpensslError()));
}

absl::StatusOr<std::vector<OwnedCertificate>> CertificatesFromPem(absl::string_view what,
                                                                  const std::string& pem) {
  const OwnedBio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  std::vector<OwnedCertificate> certificates;
  while (X509* const certificate = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    certificates.emplace_back(certificate);
  }
  const unsigned long reason = ERR_peek_last_error();
  const bool is_at_end =
      ERR_GET_LIB(reason) == ERR_LIB_PEM && ERR_GET_REASON(reason) == PEM_R_NO_START_LINE;
  if (!certificates.empty() && is_at_end) {
    ERR_clear_error();
    return certificates;
  }
  return absl::InvalidArgumentError(
      certificates.empty()
          ? absl::StrCat(what, ": there is no certificate in PEM form: ", OpensslError())
          : absl::StrCat(what, ": certificate ", certificates.size() + 1,
                         " in it is damaged or cut short: ", OpensslError()));
}

std::string PemOf(X509* certificate) {
  const OwnedBio bio(BIO_new(BIO_s_mem()));
  LODESTAR_CHECK(PEM_write_bio_X509(bio.get(), certificate) == 1) << OpensslError();
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, size);
}

std::string FingerprintOf(X509* certificate) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  LODESTAR_CHECK(X509_digest(certificate, EVP_sha256(), digest, &size) == 1) << OpensslError();
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest), size});
}

absl::Status CheckIssued(X509* certificate, X509* authority, int purpose, absl::Time now) {
  const OwnedStore store(X509_STORE_new());
  const OwnedStoreContext context(X509_STORE_CTX_new());
  LODESTAR_CHECK(X509_STORE_add_cert(store.get(), authority) == 1) << OpensslError();
  LODESTAR_CHECK(X509_STORE_CTX_init(context.get(), store.get(), certificate, nullptr) == 1)
      << OpensslError();
  X509_VERIFY_PARAM* const parameters = X509_STORE_CTX_get0_param(context.get());
  X509_VERIFY_PARAM_set_time(parameters, absl::ToTimeT(now));
  X509_VERIFY_PARAM_set_purpose(parameters, purpose);
  if (X509_verify_cert(context.get()) == 1) return absl::OkStatus();
  const int error = X509_STORE_CTX_get_error(context.get());
  ERR_clear_error();
  return absl::PermissionDeniedError(absl::StrCat(
      "the certificate that the peer sent is not valid: ", X509_verify_cert_error_string(error)));
}

}  // namespace lodestar::security
