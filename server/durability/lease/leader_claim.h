// The holder of a leader lease, as it stands in the key.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/storage/process_identity.h"

namespace lodestar::lease {

struct LeaderClaim : ProcessIdentity {
  std::string role;  // what the holder does: processes with another one have no business here
};

// One line of JSON.
std::string FormatLeaderClaim(const LeaderClaim& claim);
// Errors: InvalidArgument if no server has written it.
absl::StatusOr<LeaderClaim> ParseLeaderClaim(absl::string_view text);

}  // namespace lodestar::lease
