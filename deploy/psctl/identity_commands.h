// psctl token, identities and revoke: who may be in the cluster. Each returns what is to be
// printed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "deploy/psctl/cluster_client.h"

namespace lodestar {

struct TokenOptions {
  std::vector<std::string> words;  // create; list; revoke ID...
  std::string role;
  absl::Duration ttl;
  int max_uses = 0;
  std::string name;
  std::string address;  // empty: the server's own
  bool as_json = false;
};

// Errors also: InvalidArgument for other words.
absl::StatusOr<std::string> TokenText(ClusterClient& client, const TokenOptions& options,
                                      absl::Time now);
absl::StatusOr<std::string> IdentitiesText(ClusterClient& client, bool as_json, absl::Time now);
// `with_tokens`: also the tokens through which they had enrolled, if others are in through them.
// With `since_round` the job then goes back to the newest checkpoint of at most so many rounds;
// where it could not, nobody is revoked.
absl::StatusOr<std::string> RevokeIdentities(ClusterClient& client,
                                             const std::vector<std::string>& names,
                                             bool with_tokens, std::optional<int64_t> since_round);
// What a rollback has done.
std::string RollBackText(const v1::RollBackReply& reply);

// Of a reply: exposed for tests.
std::string RevocationText(absl::string_view name, const v1::RevokeReply& reply);
std::string TokenTable(const v1::ListTokensReply& reply, absl::Time now);
std::string IdentityTable(const v1::ListIdentitiesReply& reply, absl::Time now);

}  // namespace lodestar
