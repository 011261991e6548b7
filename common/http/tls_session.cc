// SPDX-License-Identifier: Apache-2.0

#include "common/http/tls_session.h"

#include <openssl/err.h>

#include <climits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/runtime/check.h"
#include "common/runtime/status_macros.h"

namespace lodestar::http {
namespace {

constexpr size_t kReadBytes = 4096;

absl::Status Refused(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", security::OpensslError()));
}

absl::Status ShowOwn(SSL_CTX* context, const security::CredentialFiles& files,
                     const security::Credentials& own) {
  const absl::StatusOr<security::OwnedKey> key = security::KeyFromPem(own.key);
  if (!key.ok()) {
    return absl::Status(key.status().code(), absl::StrCat(files.key, ": ", key.status().message()));
  }
  ASSIGN_OR_RETURN(const std::vector<security::OwnedCertificate> chain,
                   security::CertificatesFromPem(files.certificate, own.certificate));
  if (SSL_CTX_use_certificate(context, chain.front().get()) != 1 ||
      SSL_CTX_use_PrivateKey(context, key->get()) != 1) {
    return Refused(files.certificate);
  }
  for (size_t i = 1; i < chain.size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context, chain[i].get()) != 1) return Refused(files.certificate);
  }
  return absl::OkStatus();
}

absl::Status Believe(SSL_CTX* context, const security::CredentialFiles& files,
                     const security::Credentials& own) {
  ASSIGN_OR_RETURN(const std::vector<security::OwnedCertificate> authorities,
                   security::CertificatesFromPem(files.authority, own.authority));
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  for (const security::OwnedCertificate& authority : authorities) {
    // The server names its authorities. A browser offers only certificates of these authorities. If
    // its user has no such certificate, the browser does not ask the user.
    if (X509_STORE_add_cert(store, authority.get()) != 1 ||
        SSL_CTX_add_client_CA(context, authority.get()) != 1) {
      return Refused(files.authority);
    }
  }
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TlsContext>> TlsContext::Create(
    const security::CredentialFiles& files) {
  ASSIGN_OR_RETURN(const security::Credentials own, security::ReadCredentials(files));
  security::OwnedSslContext context(SSL_CTX_new(TLS_server_method()));
  LODESTAR_CHECK(context != nullptr) << security::OpensslError();
  SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  // Makes OpenSSL free the buffers of idle connections.
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);
  RETURN_IF_ERROR(ShowOwn(context.get(), files, own));
  RETURN_IF_ERROR(Believe(context.get(), files, own));
  return std::shared_ptr<const TlsContext>(new TlsContext(std::move(context)));
}

TlsSession::TlsSession(const TlsContext& context) : ssl_(SSL_new(context.raw())) {
  LODESTAR_CHECK(ssl_ != nullptr) << security::OpensslError();
  SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  SSL_set_accept_state(ssl_.get());
}

absl::Status TlsSession::Receive(absl::string_view bytes, std::string& plain) {
  LODESTAR_CHECK(bytes.size() <= INT_MAX);
  ERR_clear_error();
  BIO_write(SSL_get_rbio(ssl_.get()), bytes.data(), static_cast<int>(bytes.size()));
  char read[kReadBytes];
  while (true) {
    // SSL_read() also continues the handshake.
    const int num_bytes = SSL_read(ssl_.get(), read, sizeof(read));
    if (num_bytes > 0) {
      plain.append(read, static_cast<size_t>(num_bytes));
      continue;
    }
    switch (SSL_get_error(ssl_.get(), num_bytes)) {
      case SSL_ERROR_WANT_READ:
      case SSL_ERROR_ZERO_RETURN:  // the peer sends nothing more, but may still read
        return absl::OkStatus();
      default:
        if (ERR_GET_REASON(ERR_peek_error()) == SSL_R_HTTP_REQUEST) {
          return absl::InvalidArgumentError("the client sent plain text to a port that speaks TLS");
        }
        return absl::PermissionDeniedError(absl::StrCat("TLS: ", security::OpensslError()));
    }
  }
}

void TlsSession::Send(absl::string_view plain) {
  LODESTAR_CHECK(plain.size() <= INT_MAX);
  // Writing to a memory buffer always takes all bytes.
  if (!plain.empty()) SSL_write(ssl_.get(), plain.data(), static_cast<int>(plain.size()));
}

void TlsSession::Close() {
  if (is_open()) SSL_shutdown(ssl_.get());
}

std::string TlsSession::TakeOutput() {
  BIO* const out = SSL_get_wbio(ssl_.get());
  std::string bytes(BIO_ctrl_pending(out), '\0');
  if (!bytes.empty()) BIO_read(out, bytes.data(), static_cast<int>(bytes.size()));
  return bytes;
}

absl::StatusOr<std::optional<security::Identity>> TlsSession::PeerIdentity() const {
  const security::OwnedCertificate certificate(SSL_get1_peer_certificate(ssl_.get()));
  if (certificate == nullptr) return std::nullopt;
  ASSIGN_OR_RETURN(security::CertificateFacts facts,
                   security::FactsOf(security::PemOf(certificate.get())));
  return std::move(facts.identity);
}

}  // namespace lodestar::http
