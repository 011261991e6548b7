// SPDX-License-Identifier: Apache-2.0

// Estimates how much higher the loss is with fewer exchanges, from our measurements and published
// ones. For plans: the real loss may differ. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/job/job_spec.h"

namespace lodestar::plan {

// Facts besides the job's settings that the loss depends on.
struct TrainingFacts {
  int64_t num_parameters = 0;
  int num_workers = 1;
  // Number of optimizer steps in the whole job. Nullopt means that the job is long.
  std::optional<int64_t> total_steps = std::nullopt;
  bool begins_with_trained_weights = false;  // true: fine-tuning
};

struct LossEstimate {
  // Excess in percent of the held-out loss over the loss of sync in fp32 after the same number of
  // samples. Nullopt means that no comparable job was measured.
  std::optional<double> percent;
  std::string reason;  // text that names the parts of the estimate
};

// Returns the estimated loss of `job`. It depends on the schedule, the outer step and the local
// steps. Sources: tests/bench/results/local_steps.md (0.8 million parameters, 500 to 4000 steps),
// low_communication.md and encodings.md (0.8 million parameters); Scaling Laws for DiLoCo,
// arXiv:2503.09799, table 4 (35 million to 2.4 billion parameters, 30 local steps); Streaming
// DiLoCo, arXiv:2501.18512. Other jobs are extrapolated.
LossEstimate EstimateLoss(const job::JobSpec& job, const TrainingFacts& training);

}  // namespace lodestar::plan
