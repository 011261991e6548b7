// The only switch on the mode in a worker.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/job/job_spec.h"
#include "common/params/layout.h"
#include "worker/trainer/round_runner.h"

namespace lodestar::trainer {

// Errors: ResourceExhausted for device memory.
absl::StatusOr<std::unique_ptr<RoundRunner>> MakeRoundRunner(const JobSpec& job,
                                                             const RoundRunnerDeps& deps);

// Returns the device memory that the job's runner takes beside the model: the state of a local
// optimizer, and what encodings need. `memory_is_host` is what the device's capabilities say.
int64_t RunnerDeviceBytes(const JobSpec& job, const Layout& layout, bool memory_is_host);
// Returns the part of RunnerDeviceBytes() that jobs without local steps do not take: the state of a
// local optimizer, and weights of the round.
int64_t LocalStepsDeviceBytes(const JobSpec& job, const Layout& layout);
// Returns the pinned host memory that the runner takes if the device's memory is not the host's. It
// is for the host's copies of what travels. `keeps_residual` adds what the first round takes to
// keep the residual on disk.
int64_t RunnerPinnedBytes(const JobSpec& job, const Layout& layout, bool keeps_residual);

// Whether a runner made for `a` serves `b` as well.
bool HaveSameRunner(const JobSpec& a, const JobSpec& b);

}  // namespace lodestar::trainer
