// The only place that chooses an optimizer by kind.
#pragma once

#include <memory>

#include "common/job/job_spec.h"
#include "server/optimizer/optimizer.h"

namespace lodestar::optimizer {

// What the servers of this job run: the optimizer of gradients in sync and async, the outer one in
// local_sgd.
std::unique_ptr<Optimizer> MakeServerOptimizer(const JobSpec& job);

// What they do with averaged tensors.
std::unique_ptr<Optimizer> MakeAveraging(const JobSpec& job);
// The update rule for gradients, by itself.
std::unique_ptr<Optimizer> MakeGradientOptimizer(const OptimizerSettings& settings);

}  // namespace lodestar::optimizer
