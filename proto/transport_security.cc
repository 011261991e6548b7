#include "proto/transport_security.h"

#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/status_mapping.h"

namespace lodestar::wire {
namespace {

constexpr char kMethodKey[] = ":path";

absl::string_view View(grpc::string_ref text) { return {text.data(), text.size()}; }

// Checks that a certificate has the role of a server. Host names are not checked, because
// certificates of servers need not have them.
class ServerVerifier final : public grpc::experimental::ExternalCertificateVerifier {
 public:
  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)>, grpc::Status* status) override {
    *status = ToGrpcStatus(Judge(*request));
    return true;
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest*) override {}

 private:
  static absl::Status Judge(const grpc::experimental::TlsCustomVerificationCheckRequest& request) {
    for (const grpc::string_ref& uri : request.uri_names()) {
      const absl::StatusOr<Identity> peer = IdentityFromUri(View(uri));
      if (!peer.ok()) continue;
      if (peer->role == Role::kServer) return absl::OkStatus();
      return absl::PermissionDeniedError(
          absl::StrCat(View(request.target_name()), " is ", TextOf(*peer), ", and no server"));
    }
    return absl::PermissionDeniedError(
        absl::StrCat(View(request.target_name()), " has no identity in its certificate"));
  }
};

class AccessProcessor final : public grpc::AuthMetadataProcessor {
 public:
  explicit AccessProcessor(AccessCheck check) : check_(std::move(check)) {}

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    const absl::StatusOr<std::optional<Identity>> caller = CallerOf(*context);
    if (!caller.ok()) return ToGrpcStatus(caller.status());
    if (!caller->has_value()) {
      return ToGrpcStatus(absl::UnauthenticatedError("the connection has no certificate"));
    }
    const auto method = metadata.find(kMethodKey);
    if (method == metadata.end()) {
      return ToGrpcStatus(absl::UnauthenticatedError("the call names no method"));
    }
    return ToGrpcStatus(check_(**caller, View(method->second)));
  }

 private:
  const AccessCheck check_;
};

}  // namespace

TransportSecurity::TransportSecurity(const CredentialFiles& files, int watch_seconds)
    : provider_(std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
          files.key, files.certificate, files.authority,
          static_cast<unsigned int>(watch_seconds))) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(provider_);
  options.watch_identity_key_cert_pairs();
  options.watch_root_certs();
  options.set_verify_server_certs(true);
  options.set_check_call_host(false);
  options.set_certificate_verifier(
      grpc::experimental::ExternalCertificateVerifier::Create<ServerVerifier>());
  channel_ = grpc::experimental::TlsCredentials(options);
}

std::shared_ptr<grpc::ServerCredentials> TransportSecurity::MakeServerCredentials(
    AccessCheck check) const {
  if (is_plain()) return grpc::InsecureServerCredentials();
  grpc::experimental::TlsServerCredentialsOptions options(provider_);
  options.watch_identity_key_cert_pairs();
  options.watch_root_certs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  std::shared_ptr<grpc::ServerCredentials> credentials =
      grpc::experimental::TlsServerCredentials(options);
  credentials->SetAuthMetadataProcessor(std::make_shared<AccessProcessor>(std::move(check)));
  return credentials;
}

absl::StatusOr<std::optional<Identity>> CallerOf(const grpc::AuthContext& context) {
  if (!context.IsPeerAuthenticated()) return std::nullopt;
  const std::vector<grpc::string_ref> uris =
      context.FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME);
  for (const grpc::string_ref& uri : uris) {
    absl::StatusOr<Identity> identity = IdentityFromUri(View(uri));
    if (identity.ok()) return *std::move(identity);
  }
  return absl::UnauthenticatedError(
      "the certificate has no URI of the form spiffe://DOMAIN/ROLE/NAME among its names");
}

std::string CallerText(const absl::StatusOr<std::optional<Identity>>& caller) {
  return caller.ok() && caller->has_value() ? TextOf(**caller) : "somebody";
}

}  // namespace lodestar::wire
