#include "deploy/psctl/operator_access.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/security/security_flags.h"
#include "common/status_macros.h"
#include "proto/enrollment.h"

namespace lodestar {
namespace {

constexpr absl::Duration kEnrolmentTimeout = absl::Seconds(20);
constexpr absl::Duration kGreetingTimeout = absl::Seconds(2);

// Nothing: all that answer speak plain text, or none answers.
std::optional<std::string> FirstWithTls(const std::string& servers) {
  for (const absl::string_view server : absl::StrSplit(servers, ',')) {
    if (SpeaksTls(std::string(server), kGreetingTimeout)) return std::string(server);
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<OperatorAccess> FindOperatorAccess(const std::string& server, bool is_given) {
  ASSIGN_OR_RETURN(const SecurityFlags flags, ReadSecurityFlags());
  ASSIGN_OR_RETURN(const ClusterEntry entry, EnterCluster(flags, {Role::kOperator, Role::kViewer},
                                                          /*name=*/"", kEnrolmentTimeout));
  const std::string& servers = is_given || entry.servers.empty() ? server : entry.servers;
  ASSIGN_OR_RETURN(AddressList addresses, AddressList::Parse("server", servers));
  OperatorAccess access{std::move(addresses), entry.MakeSecurity(), nullptr};
  if (entry.is_renewable) {
    access.renewer = std::make_shared<CredentialRenewer>(*entry.files, entry.servers);
  }
  if (entry.files.has_value() || flags.insecure) return access;
  const std::optional<std::string> with_tls = FirstWithTls(servers);
  if (!with_tls.has_value()) {
    RETURN_IF_ERROR(CheckMayBePlain("server", servers, flags.insecure));
    return access;
  }
  const CredentialFiles local = CredentialFilesIn(absl::StrCat(flags.state_dir, "/operator"));
  const absl::StatusOr<CertificateFacts> facts = CheckCredentials(local);
  if (!facts.ok()) {
    return absl::UnauthenticatedError(absl::StrCat(
        "the server at ", *with_tls,
        " wants a certificate, and there is none of an operator here (", facts.status().message(),
        "): on the server's machine, as the server's user, psctl finds one in --state_dir; "
        "elsewhere give --join with what `psctl token create --role=operator` prints there"));
  }
  access.security = TransportSecurity(local);
  return access;
}

}  // namespace lodestar
