// SPDX-License-Identifier: Apache-2.0

// ServerSecurity is the security of one ps_server: how it proves its identity to other programs,
// and how it checks theirs. It turns flags into gRPC credentials. On the coordinator it has the
// authority of the cluster, unless the operator gives certificates of another authority.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/http/http_routes.h"
#include "common/security/credential_watch.h"
#include "proto/cluster_entry.h"
#include "proto/transport_security.h"
#include "server/authority/certificate_authority.h"
#include "server/limits/refusal_counts.h"
#include "server/rpc/revocation_watch.h"
#include "server/server_config.h"

namespace lodestar::server {

class ServerSecurity {
 public:
  // Makes or reads keys. With --join, waits for a server to enrol with, and enrols. Errors: those
  // of the files, of CertificateAuthority and AwaitEntry(); FailedPrecondition (no flag says how to
  // get a certificate).
  static absl::StatusOr<std::unique_ptr<ServerSecurity>> Open(const ServerConfig& config,
                                                              std::function<bool()> is_interrupted);

  const wire::TransportSecurity& transport() const { return transport_; }
  // Returns the credentials of the port. In plain text, callers need none. Denied calls are counted
  // in `refusals`.
  std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(
      std::shared_ptr<limits::RefusalCounts> refusals) const;
  // Returns the check that decides which callers may read the pages, and which may give orders
  // through them. It allows the same callers as StatusService and AdminService on the port. If the
  // authority is on this server, a caller may show a token instead of a certificate. Null means
  // plain text: every caller is allowed.
  http::HttpAccess MakePageAccess(std::shared_ptr<limits::RefusalCounts> refusals) const;
  // Returns a function that logs refusals of the pages, in lines that begin with `audit:`. For each
  // address it logs only a few lines per minute. It counts each refusal in `refusals` under
  // `limit`. Thread-safe.
  using PageAudit = std::function<void(const std::string& address, const std::string& why)>;
  static PageAudit MakePageAudit(std::shared_ptr<limits::RefusalCounts> refusals,
                                 limits::LimitReached limit);
  // Returns the authority. Null means that the wire is plain text, or that the certificates come
  // from another authority.
  authority::CertificateAuthority* authority() const { return authority_.get(); }
  const std::optional<security::CredentialFiles>& files() const { return files_; }

  // Returns "plain text", or "TLS" and whose certificates are accepted, for messages.
  std::string ToString() const;
  // Discards this server's certificate, because the coordinator has refused the server's identity.
  // The next start enrols anew.
  void ThrowAwayCertificate(absl::string_view why);
  // Must be called now and then. Renews the certificates that the authority of this process issues
  // for itself and for the operator of this machine. Returns a message for the operator, for
  // example about a failure. Empty means that there is nothing new.
  std::string Keep();
  // Returns a message for the operator about the certificate files that this server shows: see
  // CredentialWatch::Look().
  std::optional<std::string> LookAtFiles();

 private:
  ServerSecurity(const ServerConfig& config, std::function<bool()> is_interrupted)
      : config_(config), is_interrupted_(std::move(is_interrupted)) {}
  absl::Status OpenAuthority();
  absl::Status EnterWithJoin();
  absl::Status KeepOwn();
  // Returns the check of a caller's role, of the revocations and of the certificate's end date.
  wire::AccessCheck MakeAccessCheck(std::shared_ptr<limits::RefusalCounts> refusals) const;

  const ServerConfig config_;
  const std::function<bool()> is_interrupted_;
  // The authority of the cluster. Other servers on this machine may use the same one.
  std::unique_ptr<authority::CertificateAuthority> authority_;
  std::optional<security::CredentialFiles> files_;
  std::optional<security::CredentialWatch> watch_;  // watches files_
  wire::TransportSecurity transport_;
  std::unique_ptr<wire::CredentialRenewer> renewer_;
  // Set if the authority is on another server.
  std::unique_ptr<rpc::RevocationWatch> revocations_;
  absl::Time kept_at_ = absl::InfinitePast();
};

}  // namespace lodestar::server
