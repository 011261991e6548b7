// SPDX-License-Identifier: Apache-2.0

// psctl token, identities and revoke control which programs may be in the cluster. Each function
// returns the text that psctl prints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "deploy/psctl/cluster_client.h"

namespace lodestar::psctl {

struct TokenOptions {
  std::vector<std::string> words;  // "create", "list", or "revoke" followed by IDs
  std::string role;
  absl::Duration ttl;
  int max_uses = 0;
  std::string name;
  std::string address;  // Empty means the server's own address.
  bool as_json = false;
};

// Carries out `psctl token`. Errors also: InvalidArgument (`words` are none of the commands that
// TokenOptions lists).
absl::StatusOr<std::string> TokenText(ClusterClient& client, const TokenOptions& options,
                                      absl::Time now);
absl::StatusOr<std::string> IdentitiesText(ClusterClient& client, bool as_json, absl::Time now);
// Revokes `names`. If one call fails, the others are made also. With `with_tokens`, also revokes
// the tokens with which `names` have enrolled, even if other names have used them too. With
// `since_round`:
// - First checks that the job can roll back and that all names are known. Otherwise revokes no
//   identity.
// - After all names are revoked, the job rolls back to its newest checkpoint of at most
//   `since_round` rounds.
absl::StatusOr<std::string> RevokeIdentities(ClusterClient& client,
                                             const std::vector<std::string>& names,
                                             bool with_tokens, std::optional<int64_t> since_round);
// Returns a text about what a rollback has done.
std::string RollBackText(const v1::RollBackReply& reply);

// Return texts about a reply. They are public for the tests.
std::string RevocationText(absl::string_view name, const v1::RevokeReply& reply);
std::string TokenTable(const v1::ListTokensReply& reply, absl::Time now);
std::string IdentityTable(const v1::ListIdentitiesReply& reply, absl::Time now);

}  // namespace lodestar::psctl
