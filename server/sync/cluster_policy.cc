// SPDX-License-Identifier: Apache-2.0

#include "server/sync/cluster_policy.h"

#include "absl/strings/str_cat.h"

namespace lodestar::sync {

Decision AwaitMembers(const ClusterFacts& cluster) {
  const int members = static_cast<int>(cluster.members.size());
  const int lacking = cluster.required.count - members;
  if (lacking <= 0) return Decision::Apply();
  return Decision::Hold(absl::StrCat("waits for ", lacking, " more worker", lacking > 1 ? "s" : "",
                                     " to join (", members, " of --", cluster.required.flag, "=",
                                     cluster.required.count, ")"));
}

}  // namespace lodestar::sync
