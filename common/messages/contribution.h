// SPDX-License-Identifier: Apache-2.0

// Kinds of contributions to a round. Wire form and meaning: ContributionKind in
// proto/parameter_service.proto.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "common/job/job_spec.h"
#include "common/params/encoding.h"

namespace lodestar::messages {

enum class ContributionKind : uint8_t { kGradient, kPseudoGradient, kInitialWeights, kWeights };

// Returns what workers contribute to the rounds of a job:
//   Gradients, if the job has no local steps.
//   Weights, if IsAnchoredAtServer(). Also if the outer optimizer is `average` and no encoding
//     loses anything.
//   Pseudo-gradients otherwise. Encoded weights would lose more than encoded changes. Workers that
//     start from inexact weights would also pull the servers back to these weights.
inline ContributionKind RoundContributionKind(const job::JobSpec& job) {
  if (!job::HasLocalSteps(job)) return ContributionKind::kGradient;
  if (job::IsAnchoredAtServer(job)) return ContributionKind::kWeights;
  const bool is_exact =
      job.push_encoding == params::Encoding::kFp32 && job.pull_encoding == params::Encoding::kFp32;
  return job.outer_optimizer == job::OuterOptimizerKind::kAverage && is_exact
             ? ContributionKind::kWeights
             : ContributionKind::kPseudoGradient;
}

// Number of samples in a contribution for a step that was skipped, for example because its gradient
// was not finite. The contribution has weight zero and no elements.
inline constexpr int64_t kSkippedSamples = -1;
// Maximum weight that a program may give a contribution. The sum over all workers fits in 64 bits.
inline constexpr int64_t kMaxContributionWeight = int64_t{1} << 40;

inline absl::string_view ContributionKindName(ContributionKind kind) {
  switch (kind) {
    case ContributionKind::kGradient:
      return "gradient";
    case ContributionKind::kPseudoGradient:
      return "pseudo_gradient";
    case ContributionKind::kInitialWeights:
      return "initial_weights";
    case ContributionKind::kWeights:
      return "weights";
  }
  return "unknown";
}

// Maximum absolute value of an element of a contribution after multiplication by the scale of its
// push. In a run that has not diverged, gradients and weights are far smaller. The square of the
// limit is finite in fp32.
inline constexpr float kMaxContribution = 1e18f;
inline constexpr float kMaxContributionScale = 65536.0f;

}  // namespace lodestar::messages
