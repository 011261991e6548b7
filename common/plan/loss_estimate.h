// What exchanging less costs in loss, by what was measured here and published: for plans, not a
// promise. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/job/job_spec.h"

namespace lodestar {

// What the loss depends on beside the settings of the job.
struct TrainingFacts {
  int64_t num_parameters = 0;
  int num_workers = 1;
  // Steps of the optimizer in the whole job. Nullopt means that the job is long.
  std::optional<int64_t> total_steps = std::nullopt;
  bool begins_with_trained_weights = false;  // fine-tuning
};

struct LossEstimate {
  // The excess of the held-out loss over sync in fp32 after equal samples. Nullopt means that
  // nothing like it was measured.
  std::optional<double> percent;
  std::string reason;  // what it is made of, in words
};

// Returns what `job` is likely to lose. The schedule, the outer step and the local steps of `job`
// count. Sources, each named where it counts: tests/bench/results/local_steps.md (0.8
// million parameters, 500 to 4000 steps), low_communication.md and encodings.md (0.8 million
// parameters); Scaling Laws for DiLoCo, arXiv:2503.09799, table 4 (35 million to 2.4 billion
// parameters, 30 local steps); Streaming DiLoCo, arXiv:2501.18512. What they do not cover is
// extrapolated.
LossEstimate EstimateLoss(const JobSpec& job, const TrainingFacts& training);

}  // namespace lodestar
