// SPDX-License-Identifier: Apache-2.0

// Published settings of the outer optimizer of local_sgd, by name. Does no I/O.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/job/job_spec.h"

namespace lodestar::server {

struct OuterSettings {
  job::OuterOptimizerKind optimizer = job::OuterOptimizerKind::kNesterov;
  double learning_rate = 0.0;
  double momentum = 0.9;
  int local_steps = 1;
};

// Returns a preset. `num_workers` is the number of workers that begin the job. Names:
//   diloco        DiLoCo, arXiv:2311.08105
//   scaling_laws  the same with the best rates for 1, 2, 4 and 8 workers, arXiv:2503.09799
//   streaming     Streaming DiLoCo, arXiv:2501.18512
//   sparse_loco   SparseLoCo, arXiv:2508.15706: no momentum on the servers
//
// Errors: InvalidArgument, naming the flag, the name and the known names.
absl::StatusOr<OuterSettings> OuterPreset(absl::string_view name, int num_workers);

}  // namespace lodestar::server
