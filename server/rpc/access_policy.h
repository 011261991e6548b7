// SPDX-License-Identifier: Apache-2.0

// Decides which role may call what. No other code decides this. The check comes before any handler.
// It does no I/O.
//
//   StatusService                       operator, viewer, server
//   AdminService                        operator
//   AuthorityService                    operator; Renew: every caller; ListRevoked: server
//   ClusterService                      worker; AttachShard and ReportShard: server
//   ParameterService                    worker, server
//   ReplicaService                      server
//   health, reflection                  every caller with a certificate
//
// The handler of a worker's call checks that the worker speaks for itself only: CheckActsAs().
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/security/identity.h"

namespace lodestar::rpc {

// Checks that the caller may call the method. `method` is for instance
// "/lodestar.v1.AdminService/Stop". Errors: PermissionDenied, naming the caller, its role, and the
// roles that may call the method.
absl::Status CheckAccess(const security::Identity& caller, absl::string_view method);

// Checks that `caller` may speak for the worker of that name. If `caller` is not set, the wire is
// plain text, and every caller may speak for every worker. Errors: PermissionDenied.
absl::Status CheckActsAs(const std::optional<security::Identity>& caller,
                         absl::string_view worker_name);

}  // namespace lodestar::rpc
