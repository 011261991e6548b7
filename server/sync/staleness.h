// How the age of an asynchronous gradient weakens its update. Pure.
#pragma once

#include <cstdint>

#include "common/job_spec.h"

namespace lodestar {

// Factor on the learning rate. `staleness`: version at apply minus version that the gradient was
// computed on; below 0 counts as 0. kInverse: 1 / (1 + staleness).
double AsyncLearningRateFactor(StalenessScaling scaling, int64_t staleness);

}  // namespace lodestar
