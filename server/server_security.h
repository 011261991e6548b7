// How one ps_server is known to others, and knows them: from its flags to credentials of gRPC. On
// the coordinator it has the authority of the cluster, unless there are certificates of somebody
// else's.
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

namespace lodestar {

class ServerSecurity {
 public:
  // Makes or reads keys; enrols with --join, once there is a server to enrol with. Errors: those of
  // the files, of CertificateAuthority and AwaitEntry(); FailedPrecondition if there is nothing to
  // come to a certificate by.
  static absl::StatusOr<std::unique_ptr<ServerSecurity>> Open(const ServerConfig& config,
                                                              std::function<bool()> is_interrupted);

  const TransportSecurity& transport() const { return transport_; }
  // Asks nobody in plain text. Calls that are denied are counted in `refusals`.
  std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(
      std::shared_ptr<RefusalCounts> refusals) const;
  // Who may look at the pages and order through them: as MakeServerCredentials() has it of the
  // calls for that. Also for a token instead of a certificate, where the authority is here. Null:
  // nobody is asked, in plain text.
  HttpAccess MakePageAccess(std::shared_ptr<RefusalCounts> refusals) const;
  // Tells the log of what is refused at the pages, behind `audit:`, of each address now and then,
  // and counts it as `limit` in `refusals`. Thread-safe.
  using PageAudit = std::function<void(const std::string& address, const std::string& why)>;
  static PageAudit MakePageAudit(std::shared_ptr<RefusalCounts> refusals, LimitReached limit);
  // Null: the wire is plain text, or the certificates are somebody else's.
  CertificateAuthority* authority() const { return authority_.get(); }
  const std::optional<CredentialFiles>& files() const { return files_; }

  // For people: "plain text", or "TLS" and whose certificates count.
  std::string ToString() const;
  // The coordinator has turned this server away for who it is: the next start enrols anew.
  void ThrowAwayCertificate(absl::string_view why);
  // Now and then: certificates that the authority of this process issues for itself and for the
  // operator of this machine stay valid. Returns what the operator should know of the files that
  // this server shows; empty: nothing new.
  std::string Keep();

 private:
  ServerSecurity(const ServerConfig& config, std::function<bool()> is_interrupted)
      : config_(config), is_interrupted_(std::move(is_interrupted)) {}
  absl::Status OpenAuthority();
  absl::Status EnterWithJoin();
  absl::Status KeepOwn();
  // Of roles, revocations and ends of certificates.
  AccessCheck MakeAccessCheck(std::shared_ptr<RefusalCounts> refusals) const;

  const ServerConfig config_;
  const std::function<bool()> is_interrupted_;
  std::unique_ptr<CertificateAuthority> authority_;  // also of further servers of this machine
  std::optional<CredentialFiles> files_;
  std::optional<CredentialWatch> watch_;  // of files_
  TransportSecurity transport_;
  std::unique_ptr<CredentialRenewer> renewer_;
  std::unique_ptr<RevocationWatch> revocations_;  // where the authority is elsewhere
  absl::Time kept_at_ = absl::InfinitePast();
};

}  // namespace lodestar
