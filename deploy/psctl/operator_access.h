// Where psctl finds the cluster, and how it is known there: credentials that it was given, or, on
// the machine of the coordinator, those that the coordinator keeps there for its user.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/address_list.h"
#include "proto/cluster_entry.h"
#include "proto/transport_security.h"

namespace lodestar {

struct OperatorAccess {
  AddressList servers;
  TransportSecurity security;
  std::shared_ptr<CredentialRenewer> renewer;  // null: nothing to renew
  std::optional<CredentialFiles> files;        // none: plain text
  // Of an enrolment of this machine, which another one may take the place of.
  std::optional<CredentialFiles> joined;
};

// `server`: HOST:PORT[,HOST:PORT...]; without `is_given` a join string may say better. Blocks for
// the network. Errors: those of EnterCluster(), also Unavailable where a certificate is kept and no
// server says whether it is wanted; Unauthenticated if a server speaks TLS and there is
// nothing to show to it; InvalidArgument if plain text would leave this machine.
absl::StatusOr<OperatorAccess> FindOperatorAccess(const std::string& server, bool is_given);

}  // namespace lodestar
