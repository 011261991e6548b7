#include "server/leader_lease/leader_claim.h"

#include <utility>

#include "common/json.h"
#include "common/status_macros.h"

namespace lodestar {
namespace {

constexpr int64_t kMaxBytes = 4096;

}  // namespace

std::string FormatLeaderClaim(const LeaderClaim& claim) {
  Json json = ToJson(claim);
  json["role"] = claim.role;
  return FormatJson(json);
}

absl::StatusOr<LeaderClaim> ParseLeaderClaim(absl::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text, {.max_bytes = kMaxBytes}));
  ASSIGN_OR_RETURN(ProcessIdentity holder, ProcessIdentityFromJson(json));
  ASSIGN_OR_RETURN(std::string role, GetString(json, "role"));
  return LeaderClaim{std::move(holder), std::move(role)};
}

}  // namespace lodestar
