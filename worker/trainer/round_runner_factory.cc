#include "worker/trainer/round_runner_factory.h"

#include "worker/trainer/gradient_rounds.h"
#include "worker/trainer/local_sgd_rounds.h"

namespace lodestar {

absl::StatusOr<std::unique_ptr<RoundRunner>> MakeRoundRunner(const RoundRunnerDeps& deps) {
  const JobSpec& job = deps.registration->job;
  switch (job.mode) {
    case Mode::kSync:
      return GradientRounds::Create(deps, /*client_clip_norm=*/0.0);
    case Mode::kAsync:
      // Lock step averages the contributions of a round first, so the servers clip.
      return GradientRounds::Create(deps, job.max_rounds_ahead == 0 ? 0.0 : job.clip_norm);
    case Mode::kLocalSgd:
      return LocalSgdRounds::Create(deps);
  }
  return absl::InternalError("unknown mode");
}

}  // namespace lodestar
