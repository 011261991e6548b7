// Evaluates a worker's part of the evaluation set.
#pragma once

#include "absl/status/status.h"
#include "worker/client/work_grant.h"
#include "worker/model/model.h"
#include "worker/trainer/round_runner.h"

namespace lodestar {

// Adds loss and accuracy over the grant's held-out samples, with the model's present weights, to
// *report, and the time that it took. Does nothing if the grant has none. `gate` may be null.
absl::Status EvaluateHeldout(const WorkGrant& grant, const RoundRunnerDeps& deps, WeightsGate* gate,
                             RoundReport* report);

}  // namespace lodestar
