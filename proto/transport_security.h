// gRPC's credentials of our processes: mutual TLS with the certificates of common/security, or
// plain text where that is allowed. Both ends of the wire share this.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/security/credentials.h"
#include "common/security/identity.h"

namespace lodestar {

// What a process shows, and whom it believes; none: it speaks plain text.
using TransportSecurity = std::optional<CredentialFiles>;

// Connections to servers only: a peer with a certificate for another role is not spoken to,
// whatever its address. Files are read again when they change; what is open stays.
std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(const TransportSecurity& security);

// Whether `caller` may call `method` ("/lodestar.v1.AdminService/Stop"). Called for every call
// before its handler, from any thread; must not block. Errors: PermissionDenied, Unauthenticated.
using AccessCheck = std::function<absl::Status(const Identity& caller, absl::string_view method)>;

// Only peers with a certificate of the authority get as far as HTTP/2. `check` is for TLS only: in
// plain text nobody knows who calls.
std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(const TransportSecurity& security,
                                                               AccessCheck check);

// Who calls; none in plain text. Errors: Unauthenticated if the certificate has no identity.
absl::StatusOr<std::optional<Identity>> CallerOf(const grpc::AuthContext& context);

}  // namespace lodestar
