// What exchanging less costs in loss, by what was measured here and published: for plans, not a
// promise. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/job_spec.h"

namespace lodestar {

struct LossEstimate {
  // Of the held-out loss after equal samples, beside sync in fp32; none: nobody has measured it.
  std::optional<double> percent;
  std::string reason;  // what it is made of, in words
};

// Sources, each named where it counts: tests/bench/results/low_communication.md and encodings.md
// (0.8 million parameters, 2 and 4 workers); Scaling Laws for DiLoCo, arXiv:2503.09799, table 4 (35
// million to 2.4 billion parameters, 30 local steps); Streaming DiLoCo, arXiv:2501.18512. Beyond
// what they cover it is extrapolated. `total_steps`: of the optimizer in the whole job, of which
// few windows of local steps make few outer steps; none: there are many.
LossEstimate EstimateLoss(const JobSpec& job, int64_t num_parameters, int num_workers,
                          std::optional<int64_t> total_steps = std::nullopt);

}  // namespace lodestar
