// Memory that the shard of one server will take, computed from the job before anything is
// allocated, and compared with what there is. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/job/job_spec.h"
#include "common/machine/host_memory.h"

namespace lodestar {

// In bytes.
struct ShardMemory {
  int64_t weights = 0;
  int64_t optimizer_state = 0;
  int64_t sums = 0;     // of a round's contributions
  int64_t shadow = 0;   // where weights travel as encoded changes
  int64_t staging = 0;  // contributions on their way in
  // While a checkpoint is written, or weights are read, updates go elsewhere: at most all of it.
  int64_t copies = 0;

  int64_t steady() const { return weights + optimizer_state + sums + shadow + staging; }
  int64_t peak() const { return steady() + copies; }
  int64_t checkpoint() const { return weights + optimizer_state; }
  // "2.25 GB: weights 500.0 MB, optimizer state 1.00 GB, ..."
  std::string Describe() const;
};

// For contributions on their way in, unless a shard is told otherwise.
inline constexpr int64_t kStagingBytes = 64 << 20;

// Slots that a shard of so many elements gets for them: a share of its weights, within the limit.
int NumStagingSlots(int64_t num_elements, int64_t slot_elements, int64_t max_bytes);

// Vectors as long as the weights that the servers' optimizer of the job keeps.
int NumServerStateVectors(const JobSpec& job);

// `staging_bytes`: see ParameterShard::Config.
ShardMemory EstimateShardMemory(const JobSpec& job, int64_t num_elements,
                                int64_t staging_bytes = kStagingBytes);

// A warning if it fits until a checkpoint is written; empty if all fits, or nothing is known of the
// host. Errors: FailedPrecondition with the numbers of both, and what to do.
absl::StatusOr<std::string> CheckShardMemory(const ShardMemory& needed, const HostMemory& host);

}  // namespace lodestar
