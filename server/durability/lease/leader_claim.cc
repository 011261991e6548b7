// SPDX-License-Identifier: Apache-2.0

#include "server/durability/lease/leader_claim.h"

#include "common/archive/json_archive.h"
#include "common/runtime/json.h"
#include "common/runtime/status_macros.h"

namespace lodestar::lease {
namespace {

constexpr int64_t kMaxBytes = 4096;

}  // namespace

template <typename Archive>
void Describe(Archive& archive, LeaderClaim& claim) {
  storage::DescribeIdentity(archive, claim);
  archive("role", claim.role);
}

std::string FormatLeaderClaim(const LeaderClaim& claim) {
  return FormatJson(archive::RecordToJson(claim));
}

absl::StatusOr<LeaderClaim> ParseLeaderClaim(absl::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text, {.max_bytes = kMaxBytes}));
  LeaderClaim claim;
  RETURN_IF_ERROR(archive::ReadRecord(json, claim));
  return claim;
}

}  // namespace lodestar::lease
