// The only switch on the mode in a worker.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "worker/trainer/round_runner.h"

namespace lodestar {

// Errors: ResourceExhausted for device memory.
absl::StatusOr<std::unique_ptr<RoundRunner>> MakeRoundRunner(const RoundRunnerDeps& deps);

}  // namespace lodestar
