// SPDX-License-Identifier: Apache-2.0

#include "server/server_security.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/logging/logging.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"
#include "server/advertised_address.h"
#include "server/limits/audit_quota.h"
#include "server/page_access.h"
#include "server/page_names.h"
#include "server/rpc/access_policy.h"

namespace lodestar::server {
namespace {

// Number of checks of a certificate within its lifetime.
constexpr int64_t kLooksPerLife = 16;
constexpr int kShownDigits = 16;  // digits of the authority's hash that are shown
constexpr size_t kMaxRefusalBytes = 512;

std::string AuthorityFolder(const security::SecurityFlags& flags) {
  return absl::StrCat(flags.state_dir, "/authority");
}

// Returns true if this server has joined a cluster before, even if its certificate was discarded
// since. Such a server must not make an authority of its own.
bool HasJoined(const security::SecurityFlags& flags) {
  return wire::KeepsCertificate(flags, security::Role::kServer, /*name=*/"") ||
         !wire::LeftoversText(flags, security::Role::kServer, /*name=*/"").empty();
}

// AccessAudit logs calls that a caller's role does not allow. It is thread-safe.
class AccessAudit {
 public:
  // Logs the refusal, if the quota of `caller` allows another line.
  void Log(const std::string& caller, const absl::Status& refusal, absl::Time now)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    const std::optional<int> left_out = Take(caller, now);
    if (!left_out.has_value()) return;
    logging::LogWarn(
        "audit: refused: {}{}", PeerText(refusal.message(), kMaxRefusalBytes),
        *left_out == 0 ? "" : absl::StrCat(" (and ", *left_out, " more refusals before)"));
  }

 private:
  std::optional<int> Take(const std::string& caller, absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return quota_.Take(caller, now);
  }

  absl::Mutex mutex_;
  limits::AuditQuota quota_ ABSL_GUARDED_BY(mutex_);
};

std::string OwnName(const ServerConfig& config) {
  const int shard = config.cluster.shard;
  return config.is_replica ? security::OwnReplicaName(shard) : security::OwnServerName(shard);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerSecurity>> ServerSecurity::Open(
    const ServerConfig& config, std::function<bool()> is_interrupted) {
  std::unique_ptr<ServerSecurity> security(new ServerSecurity(config, std::move(is_interrupted)));
  if (!config.uses_tls()) return security;
  const security::SecurityFlags& flags = config.security.flags;
  std::error_code error;
  const bool has_joined_before = !config.cluster.coordinator.empty() &&
                                 !std::filesystem::exists(AuthorityFolder(flags), error) &&
                                 HasJoined(flags);
  if (flags.has_own() || !flags.join.empty() || has_joined_before) {
    RETURN_IF_ERROR(security->EnterWithJoin());
  } else {
    RETURN_IF_ERROR(security->OpenAuthority());
  }
  security->watch_.emplace(*security->files_);
  security->watch_->Look(absl::Now());  // the first text is dropped: later ones report only changes
  // Only a replica logs warnings about its certificate files here. A server reports them as alarms.
  security->transport_ =
      wire::TransportSecurity(*security->files_, config.is_replica ? wire::FileWarnings::kLogged
                                                                   : wire::FileWarnings::kNone);
  return security;
}

absl::Status ServerSecurity::OpenAuthority() {
  const security::SecurityFlags& flags = config_.security.flags;
  const bool is_coordinator = config_.is_coordinator() && !config_.is_replica;
  std::error_code error;
  if (!is_coordinator && !std::filesystem::exists(AuthorityFolder(flags), error)) {
    return absl::FailedPreconditionError(
        absl::StrCat("this server has no certificate, and --state_dir=", flags.state_dir,
                     " has no authority to issue one. On the coordinator's machine, run `psctl "
                     "token create --role=server`, and give its join string with --join. Or give "
                     "--tls_cert, or --insecure for plain text"));
  }
  ASSIGN_OR_RETURN(authority_, authority::CertificateAuthority::Open(
                                   {.folder = AuthorityFolder(flags),
                                    .certificate_ttl = config_.security.certificate_ttl},
                                   {}));
  files_ = security::CredentialFilesIn(absl::StrCat(flags.state_dir, "/", OwnName(config_)));
  return KeepOwn();
}

absl::Status ServerSecurity::EnterWithJoin() {
  // The certificate has the machine's name and not the shard's, because another machine may take
  // over the shard.
  ASSIGN_OR_RETURN(const wire::ClusterEntry entry,
                   wire::AwaitEntry(config_.security.flags, {security::Role::kServer},
                                    /*name=*/"", config_.cluster.coordinator, is_interrupted_));
  if (!entry.files.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--coordinator=", config_.cluster.coordinator,
                     " speaks plain text, but this server is told to speak TLS; give --tls to both "
                     "servers or to none"));
  }
  files_ = entry.files;
  if (entry.is_renewable) {
    // Both lists of addresses are used: a standby that has replaced the coordinator may be in only
    // one of them.
    std::string servers = entry.servers;
    if (!config_.cluster.coordinator.empty() && servers != config_.cluster.coordinator) {
      absl::StrAppend(&servers, ",", config_.cluster.coordinator);
    }
    renewer_ = std::make_unique<wire::CredentialRenewer>(*entry.files, servers, entry.enrol_again);
    revocations_ =
        std::make_unique<rpc::RevocationWatch>(wire::TransportSecurity(*entry.files), servers);
  }
  return absl::OkStatus();
}

absl::Status ServerSecurity::KeepOwn() {
  const std::string& folder = config_.security.flags.state_dir;
  RETURN_IF_ERROR(authority_
                      ->KeepOwn(absl::StrCat(folder, "/", OwnName(config_)),
                                security::Role::kServer, OwnName(config_),
                                config_.has_remote_pages()
                                    ? CertificateHosts(config_.network, HostName())
                                    : std::vector<std::string>())
                      .status());
  kept_at_ = absl::Now();
  if (!config_.is_coordinator()) return absl::OkStatus();
  return authority_
      ->KeepOwn(absl::StrCat(folder, "/operator"), security::Role::kOperator,
                security::kLocalOperator)
      .status();
}

std::string ServerSecurity::ToString() const {
  if (transport_.is_plain()) return "plain text";
  if (authority_ != nullptr) {
    return absl::StrCat("TLS, authority ", authority_->sha256().substr(0, kShownDigits));
  }
  return absl::StrCat("TLS, authority of ", files_->authority);
}

void ServerSecurity::ThrowAwayCertificate(absl::string_view why) {
  if (renewer_ == nullptr) return;
  lodestar::wire::ThrowAwayCertificate(*files_, why);
  logging::LogInfo(
      "the certificate in {} is not used any more. For the next start, give --join with the join "
      "string that `psctl token create --role=server` prints on the coordinator's machine",
      files_->certificate);
}

std::string ServerSecurity::Keep() {
  const absl::Time now = absl::Now();
  // A negative duration means that the clock was put back. Then the certificates are checked too.
  const absl::Duration since = now - kept_at_;
  const bool is_due =
      since < absl::ZeroDuration() || since >= config_.security.certificate_ttl / kLooksPerLife;
  if (authority_ != nullptr && is_due) {
    if (const absl::Status kept = KeepOwn(); !kept.ok()) {
      logging::LogWarn(
          "this server's certificate cannot be renewed yet: {}; the server tries again",
          kept.message());
      kept_at_ = now;
    }
  }
  return authority_ == nullptr ? "" : authority_->TakeTrouble();
}

std::optional<std::string> ServerSecurity::LookAtFiles() {
  return watch_.has_value() ? watch_->Look(absl::Now()) : std::nullopt;
}

wire::AccessCheck ServerSecurity::MakeAccessCheck(
    std::shared_ptr<limits::RefusalCounts> refusals) const {
  const auto check = [authority = authority_.get(), revocations = revocations_.get(),
                      audit = std::make_shared<AccessAudit>()](
                         const security::Identity& caller,
                         absl::string_view method) -> absl::Status {
    if (const absl::Status access = rpc::CheckAccess(caller, method); !access.ok()) {
      audit->Log(security::TextOf(caller), access, absl::Now());
      return access;
    }
    if (authority != nullptr) return authority->CheckHolds(caller);
    return revocations == nullptr ? absl::OkStatus() : revocations->CheckNotRevoked(caller);
  };
  return [check, refusals = std::move(refusals)](const security::Identity& caller,
                                                 absl::string_view method) {
    absl::Status allowed = check(caller, method);
    if (!allowed.ok()) refusals->Count(limits::LimitReached::kDeniedCalls);
    return allowed;
  };
}

std::shared_ptr<grpc::ServerCredentials> ServerSecurity::MakeServerCredentials(
    std::shared_ptr<limits::RefusalCounts> refusals) const {
  return transport_.MakeServerCredentials(MakeAccessCheck(std::move(refusals)));
}

ServerSecurity::PageAudit ServerSecurity::MakePageAudit(
    std::shared_ptr<limits::RefusalCounts> refusals, limits::LimitReached limit) {
  return [limit, refusals = std::move(refusals), audit = std::make_shared<AccessAudit>()](
             const std::string& address, const std::string& why) {
    refusals->Count(limit);
    audit->Log(
        address,
        absl::PermissionDeniedError(absl::StrCat("a request for a page from ", address, ": ", why)),
        absl::Now());
  };
}

http::HttpAccess ServerSecurity::MakePageAccess(
    std::shared_ptr<limits::RefusalCounts> refusals) const {
  if (transport_.is_plain()) return nullptr;
  PageAccess::Deps deps;
  deps.check = MakeAccessCheck(refusals);
  deps.may_order = [](const security::Identity& caller) {
    return rpc::CheckAccess(caller, PageAccess::kOrderMethod).ok();
  };
  if (authority_ != nullptr) {
    deps.identity_by_token = [authority = authority_.get()](absl::string_view id,
                                                            absl::string_view secret) {
      return authority->IdentityByToken(id, secret);
    };
  }
  deps.on_wrong_token =
      [audit = MakePageAudit(std::move(refusals), limits::LimitReached::kDeniedCalls)](
          const std::string& address, const absl::Status& refusal) {
        audit(address, std::string(refusal.message()));
      };
  return [access = PageAccess(std::move(deps))](const http::HttpCredentials& shown,
                                                http::HttpDeed deed) {
    return access.Judge(shown, deed);
  };
}

}  // namespace lodestar::server
