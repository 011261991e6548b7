// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/operator_access.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/runtime/status_macros.h"
#include "common/security/certificates.h"
#include "common/security/credentials.h"
#include "common/security/join_string.h"
#include "common/security/security_flags.h"
#include "proto/enrollment.h"

namespace lodestar::psctl {
namespace {

constexpr absl::Duration kEnrolmentTimeout = absl::Seconds(20);
constexpr absl::Duration kGreetingTimeout = absl::Seconds(2);

// Returns the first of `servers` that answers and speaks TLS. nullopt means that no server answers,
// or that all servers that answer use plain text.
std::optional<std::string> FirstWithTls(const std::string& servers) {
  for (const absl::string_view server : absl::StrSplit(servers, ',')) {
    const absl::StatusOr<wire::Greeting> greeting =
        wire::Greet(std::string(server), kGreetingTimeout);
    if (greeting.ok() && greeting->is_tls) return std::string(server);
  }
  return std::nullopt;
}

// Returns the join string in the environment if it is of the cluster whose operator's certificate
// this machine keeps. Otherwise returns nullopt. Such a join string may be meant for workers, so
// psctl uses its certificate instead.
absl::StatusOr<std::optional<security::JoinString>> JoinOfOwnCluster(
    const security::SecurityFlags& flags) {
  if (!flags.is_join_from_environment || flags.state_dir.empty()) return std::nullopt;
  const absl::StatusOr<security::Credentials> own = security::ReadCredentials(
      security::CredentialFilesIn(absl::StrCat(flags.state_dir, "/operator")));
  if (!own.ok()) return std::nullopt;
  ASSIGN_OR_RETURN(security::JoinString join,
                   security::ReadJoinString("$LODESTAR_JOIN", flags.join));
  const absl::StatusOr<std::string> authority = security::FingerprintOf(own->authority);
  if (!authority.ok() || *authority != join.authority_sha256) return std::nullopt;
  return join;
}

}  // namespace

absl::StatusOr<OperatorAccess> FindOperatorAccess(const std::string& given_server, bool is_given) {
  ASSIGN_OR_RETURN(security::SecurityFlags flags, security::ReadSecurityFlags());
  ASSIGN_OR_RETURN(const std::optional<security::JoinString> join_of_own, JoinOfOwnCluster(flags));
  if (join_of_own.has_value()) flags.join.clear();
  const std::string server =
      join_of_own.has_value() && !is_given ? join_of_own->servers : given_server;
  absl::StatusOr<wire::ClusterEntry> entry =
      wire::EnterCluster(flags, {security::Role::kOperator, security::Role::kViewer},
                         /*name=*/"", server, kEnrolmentTimeout);
  // EnterCluster() has found a certificate on this machine, but no server has answered. psctl uses
  // plain text only if a server says that it wants plain text.
  if (absl::IsUnavailable(entry.status()) && flags.join.empty()) {
    return absl::UnavailableError(absl::StrCat("ps_server at ", entry.status().message(),
                                               "; is it running, and is --server right?"));
  }
  RETURN_IF_ERROR(entry.status());
  const std::string& servers = is_given || entry->servers.empty() ? server : entry->servers;
  ASSIGN_OR_RETURN(net::AddressList addresses, net::AddressList::Parse("server", servers));
  OperatorAccess access{.servers = std::move(addresses),
                        .security = entry->MakeSecurity(),
                        .renewer = nullptr,
                        .files = entry->files,
                        .joined = std::nullopt};
  if (entry->is_renewable) {
    access.renewer = std::make_shared<wire::CredentialRenewer>(*entry->files, entry->servers);
    access.joined = entry->files;
  }
  if (entry->files.has_value() || flags.insecure) return access;
  const std::optional<std::string> with_tls = FirstWithTls(servers);
  if (!with_tls.has_value()) {
    RETURN_IF_ERROR(wire::CheckMayBePlain("server", servers, flags));
    return access;
  }
  return absl::UnauthenticatedError(
      absl::StrCat("the server at ", *with_tls,
                   " requires an operator's certificate, and --state_dir=", flags.state_dir,
                   " has none. On the server's machine, run psctl as the server's user. On another "
                   "machine, give --join with the join string that `psctl token create "
                   "--role=operator` prints on the server's machine"));
}

}  // namespace lodestar::psctl
