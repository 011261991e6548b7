// SPDX-License-Identifier: Apache-2.0

// LocalSgdRounds carries out rounds of local steps (local_sgd). A round makes H steps of the inner
// optimizer from the servers' weights, then one contribution. The contribution is the
// pseudo-gradient (weights at the start of the round minus weights now) for an outer optimizer, or
// the weights for plain averaging. The inner optimizer's state stays on the worker. DiLoCo:
// arXiv:2311.08105, algorithm 1.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "common/job/job_spec.h"
#include "common/messages/contribution.h"
#include "worker/model/device_memory.h"
#include "worker/trainer/local_steps.h"
#include "worker/trainer/pulled_rounds.h"

namespace lodestar::trainer {

class LocalSgdRounds final : public PulledRounds {
 public:
  // Errors: ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<LocalSgdRounds>> Create(const job::JobSpec& job,
                                                                const RoundRunnerDeps& deps);

  absl::Status KeepOptimizerState() override { return steps_->KeepState(); }

 private:
  LocalSgdRounds(const job::JobSpec& job, const RoundRunnerDeps& deps)
      : PulledRounds(deps, PullsAhead::kOnceAcknowledged),
        contribution_kind_(messages::RoundContributionKind(job)) {}
  void OnHandedOver(absl::Duration duration) override { steps_->window_end().OnHandedIn(duration); }
  absl::Status Train(const LifeContext& life, const messages::Grant& grant, WeightsPull& pull,
                     std::optional<ContributionPush>& push, messages::RoundReport* report) override;
  // Makes the local steps of the grant. If the worker is told to stop, makes only the steps that it
  // still has time for.
  absl::Status RunLocalSteps(const LifeContext& life, const messages::Grant& grant,
                             WeightsPull& pull, messages::RoundReport* report);
  // Waits for all pulled weights and copies them to start_weights_.
  absl::Status KeepStartWeights(WeightsPull& pull);
  // Computes the vector that this round contributes. It is valid until the next local step.
  void MakeContribution();

  const messages::ContributionKind contribution_kind_;
  std::unique_ptr<LocalSteps> steps_;
  model::DeviceMemory start_memory_;
  kernels::Buf start_weights_;  // The weights at the start of the round.
};

}  // namespace lodestar::trainer
