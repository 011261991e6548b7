// Where psctl finds the cluster, and which credentials it shows there. They are those that it was
// given. On the machine of the coordinator they may be those that the coordinator keeps there for
// its user.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/net/address_list.h"
#include "proto/cluster_entry.h"
#include "proto/transport_security.h"

namespace lodestar {

struct OperatorAccess {
  AddressList servers;
  wire::TransportSecurity security;
  std::shared_ptr<wire::CredentialRenewer> renewer;  // Null means that there is nothing to renew.
  std::optional<CredentialFiles> files;              // Nothing means plain text.
  // The files of an enrolment of this machine, which another enrolment may replace.
  std::optional<CredentialFiles> joined;
};

// `server` is HOST:PORT[,HOST:PORT...]. Without `is_given`, the address of a join string counts
// more. Blocks for the network. Errors: those of EnterCluster(); Unavailable also if a certificate
// is kept and no server says whether it is wanted; Unauthenticated if a server speaks TLS and there
// is nothing to show to it; InvalidArgument if plain text would leave this machine.
absl::StatusOr<OperatorAccess> FindOperatorAccess(const std::string& server, bool is_given);

}  // namespace lodestar
