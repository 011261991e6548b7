// The identity of a peer: what its certificate says of it, in a URI among the alternative names:
//   spiffe://DOMAIN/ROLE/NAME/ID      issued by a cluster's own authority; the domain is `lodestar`
//   spiffe://DOMAIN/ROLE/NAME         issued by another authority: the name is the id
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar {

enum class Role : uint8_t { kServer, kWorker, kOperator, kViewer };
absl::string_view RoleName(Role role);
// Errors: InvalidArgument naming `what`, and those that are allowed.
absl::StatusOr<Role> ParseRole(absl::string_view what, absl::string_view text);

// Bytes of a name.
inline constexpr int kMaxIdentityNameBytes = 48;

struct Identity {
  Role role = Role::kWorker;
  std::string name;  // unique among the identities of one authority
  std::string id;    // of one enrolment; renewed certificates keep it

  friend bool operator==(const Identity&, const Identity&) = default;
};

// Errors: InvalidArgument if the name is longer or breaks the rule of common/runtime/worker_name.h.
absl::Status CheckIdentityName(absl::string_view name);

// Names of those who have the authority's folder, and so no need of a token.
inline constexpr char kLocalOperator[] = "local-operator";  // the coordinator's user on its machine
// Unique where several servers of one machine share the folder.
std::string OwnServerName(int shard);
std::string OwnReplicaName(int shard);
// Whether it is of this form, or in conflict with one.
bool IsOwnIdentityName(absl::string_view name);

// "worker gpu-box": for people.
std::string TextOf(const Identity& identity);
std::string UriOf(const Identity& identity);
// Errors: InvalidArgument.
absl::StatusOr<Identity> IdentityFromUri(absl::string_view uri);

// Whether a process of the identity `name` may be the worker `worker_name`: of that name, or of one
// that goes on behind a point ("gpu-box.4711").
bool MayActAs(absl::string_view name, absl::string_view worker_name);
// Whether one of both may act as the other.
bool AreNamesInConflict(absl::string_view a, absl::string_view b);

}  // namespace lodestar
