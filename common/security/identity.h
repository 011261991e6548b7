// SPDX-License-Identifier: Apache-2.0

// The identity of a peer, from a URI among the alternative names of its certificate:
//   spiffe://DOMAIN/ROLE/NAME/ID      issued by a cluster's own authority; the domain is `lodestar`
//   spiffe://DOMAIN/ROLE/NAME         issued by another authority: the name is the id
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar::security {

enum class Role : uint8_t { kServer, kWorker, kOperator, kViewer };
absl::string_view RoleName(Role role);
// Reads a role. Errors: InvalidArgument naming `what` and the allowed roles.
absl::StatusOr<Role> ParseRole(absl::string_view what, absl::string_view text);

// Maximum bytes of a name.
inline constexpr int kMaxIdentityNameBytes = 48;

struct Identity {
  Role role = Role::kWorker;
  std::string name;  // unique among the identities of one authority
  std::string id;    // random for each enrolment; kept by renewed certificates

  friend bool operator==(const Identity&, const Identity&) = default;
};

// Checks a name. Errors: InvalidArgument if it is too long or breaks the rule of
// common/runtime/worker_name.h.
absl::Status CheckIdentityName(absl::string_view name);

// Identity name of processes that can read the authority's folder. They need no token. They run as
// the coordinator's user on the coordinator's machine.
inline constexpr char kLocalOperator[] = "local-operator";
// Return the identity name that the server, or the replica, of a shard gives itself. Servers of one
// machine may share a folder of credentials, so each name contains the shard.
std::string OwnServerName(int shard);
std::string OwnReplicaName(int shard);
// Returns true if `name` is kLocalOperator, or if OwnServerName() or OwnReplicaName() can return
// it.
bool IsOwnIdentityName(absl::string_view name);

// Returns text for messages, such as "worker gpu-box".
std::string TextOf(const Identity& identity);
std::string UriOf(const Identity& identity);
// Reads an identity. Errors: InvalidArgument.
absl::StatusOr<Identity> IdentityFromUri(absl::string_view uri);

// Returns true if a process with the identity `name` may act as the worker `worker_name`.
// `worker_name` must be `name`, or `name` followed by '.' and a suffix, as in "gpu-box.4711".
bool MayActAs(absl::string_view name, absl::string_view worker_name);
// Returns true if MayActAs() allows the identity `a` to act as the worker `b`, or `b` as `a`.
bool AreNamesInConflict(absl::string_view a, absl::string_view b);

}  // namespace lodestar::security
