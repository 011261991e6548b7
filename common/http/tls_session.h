// SPDX-License-Identifier: Apache-2.0

// The server's side of TLS as bytes in and bytes out: no socket, no thread, no blocking. TLS 1.3
// only, without resumption, so that each connection shows its certificate again. A client need not
// show a certificate. If it shows one, the authority must have issued it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/security/credentials.h"
#include "common/security/identity.h"
#include "common/security/openssl_handles.h"

namespace lodestar::http {

// The server's certificate, and the authority that must have issued client certificates.
// Thread-safe. A TlsSession may outlive its context.
class TlsContext {
 public:
  // Reads the files once. Errors: those of ReadCredentials(); InvalidArgument if OpenSSL does not
  // accept their content.
  static absl::StatusOr<std::shared_ptr<const TlsContext>> Create(
      const security::CredentialFiles& files);

  SSL_CTX* raw() const { return context_.get(); }

 private:
  explicit TlsContext(security::OwnedSslContext context) : context_(std::move(context)) {}

  const security::OwnedSslContext context_;
};

// One connection. Not thread-safe.
class TlsSession {
 public:
  explicit TlsSession(const TlsContext& context);

  // Takes bytes from the peer and appends the decrypted bytes to `plain`. Errors: InvalidArgument
  // (the peer sent an HTTP request in plain text); PermissionDenied (the handshake failed in
  // another way). After an error TakeOutput() has the alert for the peer, and Receive() must not be
  // called again.
  absl::Status Receive(absl::string_view bytes, std::string& plain);
  // Encrypts `plain` for the peer. Requires: is_open().
  void Send(absl::string_view plain);
  // Tells the peer that no more data comes. An attacker that cuts the connection cannot forge this
  // message.
  void Close();
  // Returns the bytes to send to the peer, oldest first, and removes them here.
  std::string TakeOutput();

  // Returns true if the handshake is over.
  bool is_open() const { return SSL_is_init_finished(ssl_.get()) == 1; }
  // Returns the identity in the client's certificate. nullopt means that the client has shown none.
  // Requires: is_open(). Errors: InvalidArgument if the certificate has no identity.
  absl::StatusOr<std::optional<security::Identity>> PeerIdentity() const;

 private:
  security::OwnedSsl ssl_;
};

}  // namespace lodestar::http
