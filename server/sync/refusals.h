// The refusals, repeats and waits that every policy answers alike. Pure.
#pragma once

#include <optional>

#include "server/sync/decision.h"
#include "server/sync/sync_policy.h"

namespace lodestar {

// A decision if the push is a repeat, comes from a life that is over or not announced, or carries
// the other kind of vector; none if the policy has to decide.
std::optional<Decision> RefusePush(const PushFacts& push, bool takes_pseudo_gradients);

// A decision if the pull comes from a life that is over.
std::optional<Decision> RefusePull(const PullFacts& pull);

// A decision if there are too few members for anybody to get work.
std::optional<Decision> AwaitMembers(const ClusterFacts& cluster);

}  // namespace lodestar
