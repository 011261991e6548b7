// SPDX-License-Identifier: Apache-2.0

// GradientRounds carries out rounds of gradients (sync, async). Each grant is one mini-batch, whose
// gradient is pushed while backward runs.
#pragma once

#include <memory>
#include <optional>

#include "common/job/job_spec.h"
#include "worker/trainer/gradient_clipper.h"
#include "worker/trainer/pulled_rounds.h"
#include "worker/trainer/skipped_contribution.h"

namespace lodestar::trainer {

class GradientRounds final : public PulledRounds {
 public:
  // Makes the runner. If client_clip_norm > 0, the worker itself clips each gradient to this norm.
  // It then pushes only after backward, because the gradient's norm is known only then. Errors:
  // ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<GradientRounds>> Create(const job::JobSpec& job,
                                                                const RoundRunnerDeps& deps,
                                                                double client_clip_norm);

 private:
  GradientRounds(const job::JobSpec& job, const RoundRunnerDeps& deps, double client_clip_norm)
      : PulledRounds(deps, PullsAhead::kBesideThePush),
        client_clip_norm_(client_clip_norm),
        takes_program_rates_(job::TakesProgramRates(job)) {}
  absl::Status Train(const LifeContext& life, const messages::Grant& grant, WeightsPull& pull,
                     std::optional<ContributionPush>& push, messages::RoundReport* report) override;
  // Returns true if pushing has to wait for the end of backward.
  bool pushes_late() const { return client_clip_norm_ > 0.0 || !deps_.overlap; }

  const double client_clip_norm_;
  const bool takes_program_rates_;
  std::optional<SkippedContribution> skipped_;  // Set by Create().
  std::unique_ptr<GradientClipper> clipper_;
  data::HostBatch batch_;
};

}  // namespace lodestar::trainer
