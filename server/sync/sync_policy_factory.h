// The only switch on the mode on the server.
#pragma once

#include <memory>

#include "common/job_spec.h"
#include "server/sync/sync_policy.h"

namespace lodestar {

// `job` must have passed ValidateJobSpec(). Asynchronous with max_rounds_ahead=0 is lock step and
// gives the bulk synchronous policy.
std::unique_ptr<const SyncPolicy> MakeSyncPolicy(const JobSpec& job);

}  // namespace lodestar
