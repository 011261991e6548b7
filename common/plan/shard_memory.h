// SPDX-License-Identifier: Apache-2.0

// Computes, from the job and before anything is allocated, how much memory the shard of one server
// will take, and compares it with the available memory. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/job/job_spec.h"
#include "common/machine/host_memory.h"

namespace lodestar::plan {

// All numbers are bytes.
struct ShardMemory {
  int64_t weights = 0;
  int64_t optimizer_state = 0;
  int64_t sums = 0;     // sums of a round's contributions
  int64_t shadow = 0;   // the weights as workers have them; used if changes are sent
  int64_t staging = 0;  // memory for contributions that are arriving
  // Memory for copies of weights and optimizer state. Updates go to the copies while a checkpoint
  // is written or weights are read.
  int64_t copies = 0;

  int64_t steady() const { return weights + optimizer_state + sums + shadow + staging; }
  int64_t peak() const { return steady() + copies; }
  int64_t checkpoint() const { return weights + optimizer_state; }
  // Returns text such as "2.25 GB: weights 500.0 MB, optimizer state 1.00 GB, ..."
  std::string Describe() const;
};

// Default maximum memory for contributions that are arriving.
inline constexpr int64_t kStagingBytes = 64 << 20;

// Returns the number of slots for arriving contributions of a shard with `num_elements`. The slots
// together take a share of the weights' size, at most `max_bytes`.
int NumStagingSlots(int64_t num_elements, int64_t slot_elements, int64_t max_bytes);

// Returns the number of vectors in the state of the servers' optimizer. Each vector is as long as
// the weights.
int NumServerStateVectors(const job::JobSpec& job);

// Returns the memory of a shard. `staging_bytes`: see ParameterShard::Config.
ShardMemory EstimateShardMemory(const job::JobSpec& job, int64_t num_elements,
                                int64_t staging_bytes = kStagingBytes);

// Compares `needed` with the memory of the host. Errors: FailedPrecondition with both numbers and
// what to do, if the memory is not enough. Returns a warning if the memory is enough, but not while
// a checkpoint is written. Returns an empty text if the memory is always enough, or the host's
// memory is not known.
absl::StatusOr<std::string> CheckShardMemory(const ShardMemory& needed,
                                             const machine::HostMemory& host);

}  // namespace lodestar::plan
