// Says how one ps_server is known to other programs, and knows them. It turns flags into
// credentials of gRPC. On the coordinator it has the authority of the cluster, unless the operator
// gives certificates of another authority.
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
  // Makes or reads keys. Enrols with --join, once there is a server to enrol with. Errors: those of
  // the files, of CertificateAuthority and AwaitEntry(); FailedPrecondition if there is nothing to
  // get a certificate with.
  static absl::StatusOr<std::unique_ptr<ServerSecurity>> Open(const ServerConfig& config,
                                                              std::function<bool()> is_interrupted);

  const wire::TransportSecurity& transport() const { return transport_; }
  // In plain text no caller is asked for credentials. Calls that are denied are counted in
  // `refusals`.
  std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(
      std::shared_ptr<limits::RefusalCounts> refusals) const;
  // Decides which callers may look at the pages and order through them, as MakeServerCredentials()
  // decides about the calls for that. If the authority is here, a token may stand for a
  // certificate. Null means plain text, in which no caller is asked.
  HttpAccess MakePageAccess(std::shared_ptr<limits::RefusalCounts> refusals) const;
  // Returns a function that logs what is refused at the pages, behind `audit:`, for each address
  // now and then. It counts each refusal as `limit` in `refusals`. Thread-safe.
  using PageAudit = std::function<void(const std::string& address, const std::string& why)>;
  static PageAudit MakePageAudit(std::shared_ptr<limits::RefusalCounts> refusals,
                                 limits::LimitReached limit);
  // Null means that the wire is plain text, or that the certificates are those of another
  // authority.
  authority::CertificateAuthority* authority() const { return authority_.get(); }
  const std::optional<CredentialFiles>& files() const { return files_; }

  // Returns "plain text", or "TLS" and whose certificates count, for people.
  std::string ToString() const;
  // The coordinator has turned this server away because of its identity. The next start enrols
  // anew.
  void ThrowAwayCertificate(absl::string_view why);
  // Is called now and then. Certificates that the authority of this process issues for itself and
  // for the operator of this machine stay valid. Returns what the operator should know of the files
  // that this server shows. Empty means that there is nothing new.
  std::string Keep();

 private:
  ServerSecurity(const ServerConfig& config, std::function<bool()> is_interrupted)
      : config_(config), is_interrupted_(std::move(is_interrupted)) {}
  absl::Status OpenAuthority();
  absl::Status EnterWithJoin();
  absl::Status KeepOwn();
  // The check looks at roles, revocations and ends of certificates.
  wire::AccessCheck MakeAccessCheck(std::shared_ptr<limits::RefusalCounts> refusals) const;

  const ServerConfig config_;
  const std::function<bool()> is_interrupted_;
  // It may also be that of further servers of this machine.
  std::unique_ptr<authority::CertificateAuthority> authority_;
  std::optional<CredentialFiles> files_;
  std::optional<CredentialWatch> watch_;  // Watches files_.
  wire::TransportSecurity transport_;
  std::unique_ptr<wire::CredentialRenewer> renewer_;
  // It is set if the authority is on another server.
  std::unique_ptr<rpc::RevocationWatch> revocations_;
  absl::Time kept_at_ = absl::InfinitePast();
};

}  // namespace lodestar::server
