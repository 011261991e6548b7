// SPDX-License-Identifier: Apache-2.0

#include "common/job/outer_step.h"

#include "absl/strings/str_format.h"

namespace lodestar::job {

double OuterStepRatio(const JobSpec& job) {
  if (!HasLocalSteps(job)) return 0.0;
  switch (job.outer_optimizer) {
    case OuterOptimizerKind::kAverage:
      return 1.0;
    case OuterOptimizerKind::kSgd:
      return job.outer_learning_rate;
    case OuterOptimizerKind::kNesterov:
      return job.outer_learning_rate / (1.0 - job.outer_momentum);
    case OuterOptimizerKind::kAdam:
    case OuterOptimizerKind::kEasgd:
      return 0.0;
  }
  return 0.0;
}

bool IsOuterStepLong(const JobSpec& job) {
  // In floating point, 0.75 / (1 - 0.5) may differ from 1.5 in the last bits.
  constexpr double kRounding = 1e-9;
  return OuterStepRatio(job) > kSafeOuterStepRatio + kRounding;
}

std::string DoubtOfOuterStep(const JobSpec& job) {
  if (!IsOuterStepLong(job)) return "";
  if (job.outer_optimizer == OuterOptimizerKind::kSgd) {
    return absl::StrFormat(
        "--outer_learning_rate=%g multiplies the workers' changes; with more than %g, short jobs "
        "reach a worse loss. Give --outer_learning_rate=1",
        job.outer_learning_rate, kSafeOuterStepRatio);
  }
  return absl::StrFormat(
      "--outer_learning_rate=%g with --outer_momentum=%g multiplies the workers' changes by %g / "
      "(1 - %g) = %.3g. With more than %g, short jobs had up to 27 %% more held-out loss. Unless "
      "the job is long, give --outer_learning_rate=%g --outer_momentum=%g",
      job.outer_learning_rate, job.outer_momentum, job.outer_learning_rate, job.outer_momentum,
      OuterStepRatio(job), kSafeOuterStepRatio, kDefaultOuterLearningRate, kDefaultOuterMomentum);
}

}  // namespace lodestar::job
