// The server's side of TLS as bytes in, bytes out: no socket, no thread, never blocks. TLS 1.3
// only, without resumption, so that each connection shows its certificate anew. A client may show
// one; if it does, the authority must vouch for it.
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

namespace lodestar {

// What sessions show, and whom they believe. Thread-safe; sessions keep what they need of it.
class TlsContext {
 public:
  // Reads the files once. Errors: those of ReadCredentials(); InvalidArgument if OpenSSL does not
  // take what is in them.
  static absl::StatusOr<std::shared_ptr<const TlsContext>> Create(const CredentialFiles& files);

  SSL_CTX* raw() const { return context_.get(); }

 private:
  explicit TlsContext(OwnedSslContext context) : context_(std::move(context)) {}

  const OwnedSslContext context_;
};

// Not thread-safe.
class TlsSession {
 public:
  explicit TlsSession(const TlsContext& context);

  // What has come from the peer. Appends what that says to `plain`. Errors: InvalidArgument if it
  // is a request of HTTP in plain text; PermissionDenied if the handshake failed otherwise;
  // TakeOutput() has the alert for the peer. Nothing may be received after that.
  absl::Status Receive(absl::string_view bytes, std::string& plain);
  // Requires: is_open().
  void Send(absl::string_view plain);
  // Tells the peer that nothing more comes. A third party that cuts the connection cannot do that.
  void Close();
  // What is to be sent to the peer, in this order.
  std::string TakeOutput();

  // The handshake is over.
  bool is_open() const { return SSL_is_init_finished(ssl_.get()) == 1; }
  // Returns the identity in the client's certificate. None: it has shown none. Requires: is_open().
  // Errors: InvalidArgument if it names no identity.
  absl::StatusOr<std::optional<Identity>> PeerIdentity() const;

 private:
  OwnedSsl ssl_;
};

}  // namespace lodestar
