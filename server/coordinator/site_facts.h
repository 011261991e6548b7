// What a site's state says of its orders and its data. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/messages/cluster_messages.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/site_order.h"

namespace lodestar {

// See the methods of Coordinator with these names.
std::optional<absl::StatusOr<SiteOutcome>> OrderOutcomeOf(const ClusterState& state,
                                                          uint64_t number);
std::optional<DatasetInfo> SiteDataOf(const ClusterState& state, absl::Time now);

// Whether a worker may join with this data. Errors: FailedPrecondition: with data of its own, where
// the servers upstream hand out the samples.
absl::Status CheckBrings(const ClusterState& state, const DatasetInfo& data);

}  // namespace lodestar
