// Which role may call what: the one place where that is decided, before any handler. Pure.
//
//   StatusService                       operator, viewer, server
//   AdminService                        operator
//   AuthorityService                    operator; Renew: everybody; ListRevoked: server
//   ClusterService                      worker; AttachShard and ReportShard: server
//   ParameterService                    worker, server
//   ReplicaService                      server
//   health, reflection                  everybody with a certificate
//
// That a worker speaks for itself only, its handler checks: CheckActsAs().
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/security/identity.h"

namespace lodestar {

// `method`: "/lodestar.v1.AdminService/Stop". Errors: PermissionDenied, naming the caller, what it
// is, and who may.
absl::Status CheckAccess(const Identity& caller, absl::string_view method);

// Whether `caller` (none: the wire is plain text, and everybody may be everybody) may speak for the
// worker of that name. Errors: PermissionDenied.
absl::Status CheckActsAs(const std::optional<Identity>& caller, absl::string_view worker_name);

}  // namespace lodestar
