// SPDX-License-Identifier: Apache-2.0

#include "proto/transport_security.h"

#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/logging/logging.h"
#include "common/security/credential_copies.h"
#include "common/security/credential_watch.h"
#include "proto/status_mapping.h"

namespace lodestar::wire {
namespace {

constexpr char kMethodKey[] = ":path";

absl::string_view View(grpc::string_ref text) { return {text.data(), text.size()}; }

// Gives gRPC the newest complete credentials in `files`. A thread of the provider reads the files.
// The provider must outlive the servers and channels that use its credentials.
class CredentialProvider final : public grpc::experimental::CertificateProviderInterface {
 public:
  CredentialProvider(const security::CredentialFiles& files, FileWarnings warnings,
                     int watch_seconds)
      : files_(files),
        copies_(files),
        of_grpc_(copies_.paths().key, copies_.paths().certificate, copies_.paths().authority,
                 kCopiesSeconds),
        thread_([this, watch_seconds, warnings] { Run(absl::Seconds(watch_seconds), warnings); }) {}
  ~CredentialProvider() override {
    {
      absl::MutexLock lock(&mutex_);
      is_over_ = true;
    }
    thread_.join();
  }

  grpc_tls_certificate_provider* c_provider() override { return of_grpc_.c_provider(); }

 private:
  static constexpr unsigned int kCopiesSeconds = 1;  // how often gRPC reads the copies

  void Run(absl::Duration interval, FileWarnings warnings) ABSL_LOCKS_EXCLUDED(mutex_) {
    const auto is_over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_over_; };
    security::CredentialWatch watch(files_);
    // The program has reported at its start what is wrong with the files, so the message of this
    // first Look() is dropped.
    watch.Look(absl::Now());
    while (true) {
      {
        absl::MutexLock lock(&mutex_);
        if (mutex_.AwaitWithTimeout(absl::Condition(&is_over), interval)) return;
      }
      if (copies_.Refresh() && !files_.is_kept) {
        logging::LogInfo("TLS: new connections use the certificate that is now in {}",
                         files_.certificate);
      }
      if (warnings == FileWarnings::kNone) continue;
      const std::optional<std::string> news = watch.Look(absl::Now());
      if (news.has_value() && !news->empty()) logging::LogWarn("{}", *news);
    }
  }

  const security::CredentialFiles files_;
  security::CredentialCopies copies_;  // The thread changes it.
  grpc::experimental::FileWatcherCertificateProvider of_grpc_;
  absl::Mutex mutex_;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Checks that a certificate has the role of a server. Host names are not checked, because
// certificates of servers need not have them.
class ServerVerifier final : public grpc::experimental::ExternalCertificateVerifier {
 public:
  // Keeps `provider` alive as long as channels use it.
  explicit ServerVerifier(
      std::shared_ptr<grpc::experimental::CertificateProviderInterface> provider)
      : provider_(std::move(provider)) {}

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)>, grpc::Status* status) override {
    *status = ToGrpcStatus(Judge(*request));
    return true;
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest*) override {}

 private:
  static absl::Status Judge(const grpc::experimental::TlsCustomVerificationCheckRequest& request) {
    for (const grpc::string_ref& uri : request.uri_names()) {
      const absl::StatusOr<security::Identity> peer = security::IdentityFromUri(View(uri));
      if (!peer.ok()) continue;
      if (peer->role == security::Role::kServer) return absl::OkStatus();
      return absl::PermissionDeniedError(
          absl::StrCat(View(request.target_name()), " has the certificate of ",
                       security::TextOf(*peer), ", which is no server"));
    }
    return absl::PermissionDeniedError(absl::StrCat(
        View(request.target_name()),
        " has a certificate without a Lodestar identity; see docs/howto/own_certificates.md"));
  }

  const std::shared_ptr<grpc::experimental::CertificateProviderInterface> provider_;
};

class AccessProcessor final : public grpc::AuthMetadataProcessor {
 public:
  // Keeps `provider` alive as long as a server uses it.
  AccessProcessor(AccessCheck check,
                  std::shared_ptr<grpc::experimental::CertificateProviderInterface> provider)
      : check_(std::move(check)), provider_(std::move(provider)) {}

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    const absl::StatusOr<std::optional<security::Identity>> caller = CallerOf(*context);
    if (!caller.ok()) return ToGrpcStatus(caller.status());
    if (!caller->has_value()) {
      return ToGrpcStatus(
          absl::UnauthenticatedError("the connection has no certificate; start the program that "
                                     "connects with --join or --tls_cert"));
    }
    const auto method = metadata.find(kMethodKey);
    if (method == metadata.end()) {
      return ToGrpcStatus(absl::UnauthenticatedError("the call names no method"));
    }
    return ToGrpcStatus(check_(**caller, View(method->second)));
  }

 private:
  const AccessCheck check_;
  const std::shared_ptr<grpc::experimental::CertificateProviderInterface> provider_;
};

}  // namespace

TransportSecurity::TransportSecurity(const security::CredentialFiles& files, FileWarnings warnings,
                                     int watch_seconds)
    : provider_(std::make_shared<CredentialProvider>(files, warnings, watch_seconds)) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(provider_);
  options.watch_identity_key_cert_pairs();
  options.watch_root_certs();
  options.set_verify_server_certs(true);
  options.set_check_call_host(false);
  options.set_certificate_verifier(
      grpc::experimental::ExternalCertificateVerifier::Create<ServerVerifier>(provider_));
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
  credentials->SetAuthMetadataProcessor(
      std::make_shared<AccessProcessor>(std::move(check), provider_));
  return credentials;
}

absl::StatusOr<std::optional<security::Identity>> CallerOf(const grpc::AuthContext& context) {
  if (!context.IsPeerAuthenticated()) return std::nullopt;
  const std::vector<grpc::string_ref> uris =
      context.FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME);
  for (const grpc::string_ref& uri : uris) {
    absl::StatusOr<security::Identity> identity = security::IdentityFromUri(View(uri));
    if (identity.ok()) return *std::move(identity);
  }
  return absl::UnauthenticatedError(
      "the certificate has no URI of the form spiffe://DOMAIN/ROLE/NAME among its names");
}

std::string CallerText(const absl::StatusOr<std::optional<security::Identity>>& caller) {
  return caller.ok() && caller->has_value() ? security::TextOf(**caller) : "somebody";
}

}  // namespace lodestar::wire
