// Owns what ClusterFacts points to: one moment of the cluster for the policy. Pure data.
#pragma once

#include <optional>
#include <vector>

#include "common/ids.h"
#include "server/sync/cluster_policy.h"

namespace lodestar {

struct ClusterView {
  RequiredMembers required;
  std::vector<MemberProgress> members;  // ascending by worker
  std::optional<Round> open_round;
  int reported = 0;
  std::vector<MemberProgress> missing;

  // Valid while this object is unchanged.
  ClusterFacts Facts() const {
    ClusterFacts facts;
    facts.required = required;
    facts.members = members;
    if (open_round.has_value()) facts.open_round = OpenRoundFacts{*open_round, reported, missing};
    return facts;
  }
};

}  // namespace lodestar
