// Whether who calls may come into the job as it stands. Pure.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/cluster_messages.h"
#include "common/encoding.h"
#include "common/job_spec.h"
#include "server/coordinator/cluster_state.h"

namespace lodestar {

// Error: FailedPrecondition: the client does not know the encodings of the job.
absl::Status CheckEncodings(const JobSpec& job, const std::vector<Encoding::Kind>& known);
// Whether the layout that the client brings is the job's. Errors: InvalidArgument;
// FailedPrecondition if it would go by the job's, and has other tensors.
absl::Status CheckOffered(const ClusterState& state, const RegisterCall& call);
// Where a round takes so many contributions at most. Who has registered and not joined takes no
// room. Error: Unavailable.
absl::Status CheckRoom(const ClusterState& state, absl::string_view name);
// Error: FailedPrecondition.
absl::Status CheckLayoutHash(const ClusterState& state, absl::string_view layout_hash);
// Of who was dropped because it did not supply the weights that others waited for. Error:
// Unavailable: these come first.
absl::Status CheckMayClaimSupply(const ClusterState& state, const RegisterCall& call,
                                 absl::Time now);

}  // namespace lodestar
