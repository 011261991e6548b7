// SPDX-License-Identifier: Apache-2.0

// Finds the cluster and the credentials of psctl. These are the credentials that psctl was given.
// On the coordinator's machine, psctl can also use those that the coordinator keeps for its user.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/net/address_list.h"
#include "proto/cluster_entry.h"
#include "proto/transport_security.h"

namespace lodestar::psctl {

struct OperatorAccess {
  net::AddressList servers;
  wire::TransportSecurity security;
  std::shared_ptr<wire::CredentialRenewer> renewer;  // Null means that there is nothing to renew.
  std::optional<security::CredentialFiles> files;    // Not set means plain text.
  // Credentials that this machine got when it enrolled with a join string. If it enrols again, they
  // may be replaced. Not set means that psctl uses no such credentials.
  std::optional<security::CredentialFiles> joined;
};

// Finds the servers and the credentials for them. `server` is HOST:PORT[,HOST:PORT...]. `is_given`
// says whether the user gave --server. If not, the address in a join string takes precedence.
// Blocks for the network. Errors:
// - Those of EnterCluster().
// - Unavailable: this machine keeps a certificate, and no server says whether it wants one.
// - Unauthenticated: a server speaks TLS, and psctl has no certificate.
// - InvalidArgument: psctl would use plain text to another machine.
absl::StatusOr<OperatorAccess> FindOperatorAccess(const std::string& server, bool is_given);

}  // namespace lodestar::psctl
