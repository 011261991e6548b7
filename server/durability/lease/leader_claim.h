// SPDX-License-Identifier: Apache-2.0

// A LeaderClaim says which process holds a leader lease. It is stored as the value of the lease's
// key.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/storage/process_identity.h"

namespace lodestar::lease {

struct LeaderClaim : storage::ProcessIdentity {
  std::string role;  // what the holder does; a process with another role must not take the key
};

// Returns the claim as one line of JSON.
std::string FormatLeaderClaim(const LeaderClaim& claim);
// Parses a claim. Errors: InvalidArgument (the text was not written by a Lodestar server).
absl::StatusOr<LeaderClaim> ParseLeaderClaim(absl::string_view text);

}  // namespace lodestar::lease
