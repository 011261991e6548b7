// Rounds of local steps (local_sgd): H steps of the inner optimizer from the weights of the server,
// then one contribution: the pseudo-gradient (weights at the start of the round minus weights now)
// for an outer optimizer, or the weights themselves for plain averaging. Inner optimizer state
// stays here. DiLoCo: arXiv:2311.08105, algorithm 1.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "common/contribution.h"
#include "common/job_spec.h"
#include "worker/trainer/inner_optimizer.h"
#include "worker/trainer/round_runner.h"

namespace lodestar {

class LocalSgdRounds final : public RoundRunner {
 public:
  // Errors: ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<LocalSgdRounds>> Create(const JobSpec& job,
                                                                const RoundRunnerDeps& deps);
  ~LocalSgdRounds() override;

 private:
  LocalSgdRounds(const JobSpec& job, const RoundRunnerDeps& deps)
      : RoundRunner(deps), contribution_kind_(RoundContributionKind(job)) {}
  absl::Status Train(const LifeContext& life, const Grant& grant, WeightsPull& pull,
                     std::optional<ContributionPush>& push, RoundReport* report) override;
  // Steps until the grant is used up or the worker is told to stop.
  absl::Status RunLocalSteps(const LifeContext& life, const Grant& grant, WeightsPull* pull,
                             RoundReport* report);
  // Gradient and step on batch_. `pull`: in the first step of a round; else null.
  absl::StatusOr<BatchResult> MakeStep(WeightsPull* pull, double learning_rate, double clip_norm);
  // On batch_. `gate` may be null.
  absl::StatusOr<BatchResult> TrainStep(WeightsGate* gate);
  // Once they are all there.
  absl::Status KeepStartWeights(WeightsPull& pull);
  // After the steps of a round.
  absl::Status CheckOptimizer(Round round);
  // Makes the vector that this round contributes; it is valid until the next local step.
  void MakeContribution();

  const ContributionKind contribution_kind_;
  std::unique_ptr<InnerOptimizer> inner_optimizer_;  // null: the model has one of its own
  Buf start_weights_;                                // of the round
  uint64_t server_incarnation_ = 0;  // that inner_optimizer_'s state belongs to; 0 before a round
  HostBatch batch_;
};

}  // namespace lodestar
