// SPDX-License-Identifier: Apache-2.0

// Creates optimizers. No other code chooses an optimizer by its kind.
#pragma once

#include <memory>

#include "common/job/job_spec.h"
#include "server/optimizer/optimizer.h"

namespace lodestar::optimizer {

// Returns the optimizer that the servers of this job run. In sync and async, it is the optimizer
// for gradients. In local_sgd, it is the outer optimizer.
std::unique_ptr<Optimizer> MakeServerOptimizer(const job::JobSpec& job);

// Returns the update rule for averaged tensors.
std::unique_ptr<Optimizer> MakeAveraging(const job::JobSpec& job);
// Returns the optimizer that `settings` describe. It updates weights with gradients, not with
// results of local steps.
std::unique_ptr<Optimizer> MakeGradientOptimizer(const job::OptimizerSettings& settings);

}  // namespace lodestar::optimizer
