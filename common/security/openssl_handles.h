// Owners of OpenSSL's objects, PEM text in and out, what OpenSSL says of an error, and whether it
// works at all.
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

namespace lodestar {

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
// Does not own what is in it.
using OwnedCertificates = std::unique_ptr<STACK_OF(X509), OpensslDelete<FreeStack>>;
using OwnedStoreContext = std::unique_ptr<X509_STORE_CTX, OpensslDelete<X509_STORE_CTX_free>>;
using OwnedBio = std::unique_ptr<BIO, OpensslDelete<BIO_free_all>>;
using OwnedSslContext = std::unique_ptr<SSL_CTX, OpensslDelete<SSL_CTX_free>>;
using OwnedSsl = std::unique_ptr<SSL, OpensslDelete<SSL_free>>;

// The oldest error of this thread, in words; none remain.
std::string OpensslError();

// Ends the process with exit code 1 and a sentence if OpenSSL gives no random bytes or makes no
// TLS context: its configuration may have no default provider. OpenSSL and gRPC would abort, or
// read address 0, later. Every program of ours calls it at the top of main(). `program`: its name.
void ExitUnlessOpensslWorks(absl::string_view program);

// Errors: InvalidArgument. `what` names the text.
absl::StatusOr<OwnedKey> KeyFromPem(const std::string& pem);
absl::StatusOr<OwnedCertificate> CertificateFromPem(absl::string_view what, const std::string& pem);
// All certificates of the text, at least one.
absl::StatusOr<std::vector<OwnedCertificate>> CertificatesFromPem(absl::string_view what,
                                                                  const std::string& pem);
std::string PemOf(X509* certificate);
// As FingerprintOf().
std::string FingerprintOf(X509* certificate);
// As CheckIssued(). `purpose`: X509_PURPOSE_ANY or of one side.
absl::Status CheckIssued(X509* certificate, X509* authority, int purpose, absl::Time now);

}  // namespace lodestar
