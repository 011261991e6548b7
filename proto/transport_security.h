// SPDX-License-Identifier: Apache-2.0

// gRPC credentials of our processes: mutual TLS with the certificates of common/security, or plain
// text if that is allowed. Used on both ends of a connection.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/security/tls_certificate_provider.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/security/credentials.h"
#include "common/security/identity.h"

namespace lodestar::wire {

// Returns OK if `caller` may call `method` ("/lodestar.v1.AdminService/Stop"). It is called before
// the handler of every call, from any thread, and must not block for long. Errors:
// PermissionDenied, Unauthenticated.
using AccessCheck =
    std::function<absl::Status(const security::Identity& caller, absl::string_view method)>;

// Says whether TransportSecurity logs the messages of CredentialWatch about the files.
enum class FileWarnings : uint8_t { kNone, kLogged };

// How a process secures its connections. Copies share their state, so the files are watched only
// once. Thread-safe.
class TransportSecurity {
 public:
  // Uses plain text.
  TransportSecurity() = default;
  // Uses TLS with the files, and reads them again when they change. Open connections stay open. If
  // the new files are incomplete, new connections use the last complete files.
  explicit TransportSecurity(const security::CredentialFiles& files,
                             FileWarnings warnings = FileWarnings::kNone, int watch_seconds = 5);

  bool is_plain() const { return provider_ == nullptr; }
  // Returns the credentials for connections to servers. With TLS, a peer is refused if its
  // certificate does not have the role of a server. Addresses in the certificate are not checked.
  std::shared_ptr<grpc::ChannelCredentials> channel_credentials() const {
    return is_plain() ? grpc::InsecureChannelCredentials() : channel_;
  }
  // Returns the credentials of a server. With TLS, a peer without a certificate of the authority is
  // refused before it can send HTTP/2. With plain text, callers are not known, and `check` is not
  // called.
  std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(AccessCheck check) const;

 private:
  std::shared_ptr<grpc::experimental::CertificateProviderInterface> provider_;
  // Null means plain text. The credentials for plain text are made by channel_credentials(),
  // because gRPC need not be initialized before that.
  std::shared_ptr<grpc::ChannelCredentials> channel_;
};

// Returns the caller's identity, or nullopt in plain text. Errors: Unauthenticated if the
// certificate has no identity.
absl::StatusOr<std::optional<security::Identity>> CallerOf(const grpc::AuthContext& context);

// Returns the caller for the log, such as "operator alice". If the identity is not known, as in
// plain text, returns a fixed word.
std::string CallerText(const absl::StatusOr<std::optional<security::Identity>>& caller);

}  // namespace lodestar::wire
