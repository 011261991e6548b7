// This is the one place where it is decided which role may call what, before any handler. It is
// pure.
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

// `method` is for instance "/lodestar.v1.AdminService/Stop". Errors: PermissionDenied, naming the
// caller, its role, and the roles that may call the method.
absl::Status CheckAccess(const Identity& caller, absl::string_view method);

// Checks that `caller` may speak for the worker of that name. If there is no caller, the wire is
// plain text, and every caller may speak for every worker. Errors: PermissionDenied.
absl::Status CheckActsAs(const std::optional<Identity>& caller, absl::string_view worker_name);

}  // namespace lodestar::rpc
