// SPDX-License-Identifier: Apache-2.0

// Owning pointers to OpenSSL's objects, conversion to and from PEM text, OpenSSL's error messages,
// and a check that OpenSSL works.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar::security {

template <auto kFree>
struct OpensslDelete {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};

inline void FreeStack(STACK_OF(X509) * certificates) { sk_X509_free(certificates); }

using OwnedKey = std::unique_ptr<EVP_PKEY, OpensslDelete<EVP_PKEY_free>>;
using OwnedCertificate = std::unique_ptr<X509, OpensslDelete<X509_free>>;
using OwnedRequest = std::unique_ptr<X509_REQ, OpensslDelete<X509_REQ_free>>;
using OwnedStore = std::unique_ptr<X509_STORE, OpensslDelete<X509_STORE_free>>;
// Owns the stack, but not the certificates in it.
using OwnedCertificates = std::unique_ptr<STACK_OF(X509), OpensslDelete<FreeStack>>;
using OwnedStoreContext = std::unique_ptr<X509_STORE_CTX, OpensslDelete<X509_STORE_CTX_free>>;
using OwnedBio = std::unique_ptr<BIO, OpensslDelete<BIO_free_all>>;
using OwnedSslContext = std::unique_ptr<SSL_CTX, OpensslDelete<SSL_CTX_free>>;
using OwnedSsl = std::unique_ptr<SSL, OpensslDelete<SSL_free>>;

// Returns the text of the oldest OpenSSL error on this thread, and clears all errors of the thread.
std::string OpensslError();

// If OpenSSL gives no random bytes or cannot make a TLS context, prints an error and ends the
// process with exit code 1. A possible cause is a configuration without the default provider.
// Without this check, OpenSSL or gRPC would crash later. `program` is the name of this program in
// the error.
void ExitUnlessOpensslWorks(absl::string_view program);

// Read a key or a certificate from PEM text. `what` names the text. Errors: InvalidArgument.
absl::StatusOr<OwnedKey> KeyFromPem(const std::string& pem);
absl::StatusOr<OwnedCertificate> CertificateFromPem(absl::string_view what, const std::string& pem);
// Reads all certificates of the text, at least one. A certificate that is cut short is an error.
absl::StatusOr<std::vector<OwnedCertificate>> CertificatesFromPem(absl::string_view what,
                                                                  const std::string& pem);
std::string PemOf(X509* certificate);
// Does the same as FingerprintOf() of certificates.h.
std::string FingerprintOf(X509* certificate);
// Does the same as CheckIssued() of certificates.h, and checks the purpose of the certificate.
// `purpose` is the purpose of a TLS client or a TLS server. X509_PURPOSE_ANY means that any purpose
// is right.
absl::Status CheckIssued(X509* certificate, X509* authority, int purpose, absl::Time now);

}  // namespace lodestar::security
