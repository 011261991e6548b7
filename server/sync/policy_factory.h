// SPDX-License-Identifier: Apache-2.0

// Creates the policies for a mode. No other code of the server depends on the mode.
#pragma once

#include <memory>

#include "common/job/job_spec.h"
#include "server/sync/bucket_policy.h"
#include "server/sync/cluster_policy.h"

namespace lodestar::sync {

// Return the policies of the job's mode for buckets and for the cluster. `job` must have passed
// ValidateJobSpec().
std::unique_ptr<const BucketPolicy> MakeBucketPolicy(const job::JobSpec& job);
std::unique_ptr<const ClusterPolicy> MakeClusterPolicy(const job::JobSpec& job);

// Returns true if the servers clip the norm of a round's mean gradient: rounds have rosters,
// contributions are gradients and the job has a clip_norm.
bool ClipsMean(const job::JobSpec& job);

}  // namespace lodestar::sync
