// Evaluates a worker's part of the evaluation set.
#pragma once

#include "absl/status/status.h"
#include "worker/client/work_grant.h"
#include "worker/trainer/round_runner.h"
#include "worker/trainer/weights_pull.h"

namespace lodestar {

// Adds loss and accuracy over the grant's held-out samples, with the model's present weights, to
// *report, and the time that computing it took, without waiting for `pull`. Does nothing if the
// grant has none. Errors: those of data, model and pull; Aborted if the life is over.
absl::Status EvaluateHeldout(const LifeContext& life, const WorkGrant& grant,
                             const RoundRunnerDeps& deps, WeightsPull* pull, RoundReport* report);

}  // namespace lodestar
