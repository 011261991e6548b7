// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/faults/divergence_policy.h"

#include "absl/strings/str_cat.h"
#include "common/runtime/flag_range.h"
#include "common/runtime/status_macros.h"

namespace lodestar::faults {
namespace {

constexpr double kLowestFactor = 1e-6;
constexpr int kMostRollbacks = 1000;
constexpr int kMostNonfinite = 1'000'000;

}  // namespace

absl::StatusOr<DivergenceAction> ParseDivergenceAction(absl::string_view name) {
  if (name == "stop") return DivergenceAction::kStop;
  if (name == "rollback") return DivergenceAction::kRollback;
  return absl::InvalidArgumentError(
      absl::StrCat("--on_divergence=", name, " is unknown; allowed: stop, rollback"));
}

absl::Status ValidateDivergencePolicy(const DivergencePolicy& policy) {
  RETURN_IF_ERROR(
      CheckRange("rollback_lr_factor", policy.learning_rate_factor, kLowestFactor, 1.0));
  RETURN_IF_ERROR(CheckWholeRange("max_rollbacks", policy.max_rollbacks, 1, kMostRollbacks));
  RETURN_IF_ERROR(CheckWholeRange("nonfinite_limit", policy.nonfinite_limit, 1, kMostNonfinite));
  return CheckWholeRange("poison_limit", policy.poison_limit, 0,
                         DivergencePolicy::kPoisonWindow - 1);
}

absl::Status CheckFits(const DivergencePolicy& policy, const job::JobSpec& job) {
  if (!job::ReducesOnly(job) || policy.action != DivergenceAction::kRollback)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--on_divergence=rollback contradicts --optimizer=reduce, because the servers then have no "
      "weights to go back to. Use --on_divergence=stop");
}

}  // namespace lodestar::faults
