// gRPC's credentials of our processes: mutual TLS with the certificates of common/security, or
// plain text where that is allowed. Both ends of the wire share this.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/security/tls_certificate_provider.h>

#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/security/credentials.h"
#include "common/security/identity.h"

namespace lodestar::wire {

// Returns OK if `caller` may call `method` ("/lodestar.v1.AdminService/Stop"). It is called for
// every call before its handler, from any thread, and must not block for long. Errors:
// PermissionDenied, Unauthenticated.
using AccessCheck = std::function<absl::Status(const Identity& caller, absl::string_view method)>;

// How one process meets others. Copies share what they have: files are watched once. Thread-safe.
class TransportSecurity {
 public:
  // This is plain text.
  TransportSecurity() = default;
  // TLS, with what is in the files, which are read again when they change; connections that are
  // open stay.
  explicit TransportSecurity(const CredentialFiles& files, int watch_seconds = 5);

  bool is_plain() const { return provider_ == nullptr; }
  // Connections to servers only: a peer with a certificate for another role is not spoken to,
  // whatever its address.
  std::shared_ptr<grpc::ChannelCredentials> channel_credentials() const {
    return is_plain() ? grpc::InsecureChannelCredentials() : channel_;
  }
  // Only peers with a certificate of the authority get as far as HTTP/2. In plain text it is not
  // known who calls, and `check` is not asked.
  std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(AccessCheck check) const;

 private:
  std::shared_ptr<grpc::experimental::CertificateProviderInterface> provider_;
  std::shared_ptr<grpc::ChannelCredentials> channel_;  // null: plain text, and gRPC has not begun
};

// Returns who calls, and none in plain text. Errors: Unauthenticated if the certificate has no
// identity.
absl::StatusOr<std::optional<Identity>> CallerOf(const grpc::AuthContext& context);

// Returns the caller for the log: "operator alice". If the identity of the caller is not known, as
// in plain text, the text is a word for any caller.
std::string CallerText(const absl::StatusOr<std::optional<Identity>>& caller);

}  // namespace lodestar::wire
