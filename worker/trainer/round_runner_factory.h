// The only switch on the mode in a worker.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/job_spec.h"
#include "common/layout.h"
#include "worker/trainer/round_runner.h"

namespace lodestar {

// Errors: ResourceExhausted for device memory.
absl::StatusOr<std::unique_ptr<RoundRunner>> MakeRoundRunner(const JobSpec& job,
                                                             const RoundRunnerDeps& deps);

// Device memory that the job's runner takes beside the model: the state of a local optimizer, and
// what encodings need; `memory_is_host`: as the device's capabilities say.
int64_t RunnerDeviceBytes(const JobSpec& job, const Layout& layout, bool memory_is_host);
// Of these, what jobs without local steps do not take: the state of a local optimizer, and weights
// of the round.
int64_t LocalStepsDeviceBytes(const JobSpec& job, const Layout& layout);
// Pinned host memory that it takes where the device's memory is not the host's: the host's ends of
// what travels; `keeps_residual`: with what its first round takes to keep on disk what it owes.
int64_t RunnerPinnedBytes(const JobSpec& job, const Layout& layout, bool keeps_residual);

// Whether a runner made for `a` serves `b` as well.
bool HaveSameRunner(const JobSpec& a, const JobSpec& b);

}  // namespace lodestar
