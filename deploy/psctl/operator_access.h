// SPDX-License-Identifier: Apache-2.0

// Finds the cluster and the credentials of psctl. The credentials are those that psctl was given.
// On the coordinator's machine, the credentials may be those that the coordinator keeps there for
// its user.
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
  // Files of the identity with which this machine has enrolled by a join string. A new enrolment
  // may replace them. Not set means that psctl uses no such identity.
  std::optional<security::CredentialFiles> joined;
};

// Finds the servers and the credentials for them. `server` is HOST:PORT[,HOST:PORT...]. If
// `is_given` is false, the address of a join string takes precedence. Blocks for the network.
// Errors: those of EnterCluster(); Unavailable also (a certificate is kept, and no server says
// whether it wants one); Unauthenticated (a server speaks TLS, and psctl has no certificate);
// InvalidArgument (plain text would leave this machine).
absl::StatusOr<OperatorAccess> FindOperatorAccess(const std::string& server, bool is_given);

}  // namespace lodestar::psctl
