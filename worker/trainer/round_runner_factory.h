// SPDX-License-Identifier: Apache-2.0

// Makes the runner of a job. No other code of a worker branches on the mode.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/job/job_spec.h"
#include "common/params/layout.h"
#include "worker/trainer/round_runner.h"

namespace lodestar::trainer {

// Makes the job's runner. Errors: ResourceExhausted for device memory.
absl::StatusOr<std::unique_ptr<RoundRunner>> MakeRoundRunner(const job::JobSpec& job,
                                                             const RoundRunnerDeps& deps);

// Returns the device memory that the job's runner needs besides the model, for the state of an
// inner optimizer and for encodings. `memory_is_host` is true if the device's memory is host
// memory.
int64_t RunnerDeviceBytes(const job::JobSpec& job, const params::Layout& layout,
                          bool memory_is_host);
// Returns the part of RunnerDeviceBytes() that only local steps need: the state of an inner
// optimizer, and copies of the weights.
int64_t LocalStepsDeviceBytes(const job::JobSpec& job, const params::Layout& layout);
// Returns the pinned host memory that the runner needs if the host cannot address the device's
// memory. It is used for copies of vectors that are sent or received. If `keeps_residual`, also
// includes the memory for storing the residual on disk, which the first round allocates.
int64_t RunnerPinnedBytes(const job::JobSpec& job, const params::Layout& layout,
                          bool keeps_residual);

// Returns true if a runner made for `a` can also carry out `b`.
bool HaveSameRunner(const job::JobSpec& a, const job::JobSpec& b);

}  // namespace lodestar::trainer
