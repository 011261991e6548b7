#include "worker/trainer/round_runner.h"

#include "common/remedy.h"

namespace lodestar {

absl::StatusOr<RoundReport> RoundRunner::Run(const LifeContext& life, const WorkGrant& grant) {
  absl::StatusOr<RoundReport> report = RunRound(life, grant);
  if (report.ok() || RemedyFor(report.status()) == Remedy::kRejoin) return report;
  return AsFinal(report.status());
}

}  // namespace lodestar
