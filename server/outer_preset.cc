// SPDX-License-Identifier: Apache-2.0

#include "server/outer_preset.h"

#include "absl/strings/str_cat.h"

namespace lodestar::server {
namespace {

// Returns the outer learning rate that was best for this number of workers. The rates were measured
// with 1, 2, 4 and 8 workers at 30 local steps. For 1 worker, a range of rates is equally good, and
// 0.5 is its middle.
double BestRate(int num_workers) {
  if (num_workers < 2) return 0.5;
  return num_workers < 8 ? 0.6 : 0.8;
}

}  // namespace

absl::StatusOr<OuterSettings> OuterPreset(absl::string_view name, int num_workers) {
  OuterSettings settings;
  if (name == "diloco") {
    settings.learning_rate = 0.7;
    settings.local_steps = 500;
  } else if (name == "scaling_laws") {
    settings.learning_rate = BestRate(num_workers);
    settings.local_steps = 30;
  } else if (name == "streaming") {
    settings.learning_rate = 0.4;
    settings.local_steps = 30;
  } else if (name == "sparse_loco") {
    settings.optimizer = job::OuterOptimizerKind::kSgd;
    settings.learning_rate = 1.0;
    settings.local_steps = 15;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("--outer_preset=", name,
                     " is unknown; allowed: diloco, scaling_laws, streaming, sparse_loco"));
  }
  return settings;
}

}  // namespace lodestar::server
