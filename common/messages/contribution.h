// What a worker contributes to a round. Wire form and meaning: ContributionKind in
// proto/parameter_service.proto.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "common/job/job_spec.h"
#include "common/params/encoding.h"

namespace lodestar {

enum class ContributionKind : uint8_t { kGradient, kPseudoGradient, kInitialWeights, kWeights };

// What the rounds of a job are made of: gradients in sync and async; with local steps weights for
// the outer optimizer `average`, if they lose nothing on the way, and where the servers measure
// from their own; pseudo-gradients otherwise.
// (Encoding weights loses more than encoding what a round changed; and workers that start from what
// they know of the weights would take the servers back to it.)
inline ContributionKind RoundContributionKind(const JobSpec& job) {
  if (!HasLocalSteps(job)) return ContributionKind::kGradient;
  if (IsAnchoredAtServer(job)) return ContributionKind::kWeights;
  const bool is_exact =
      job.push_encoding == Encoding::kFp32 && job.pull_encoding == Encoding::kFp32;
  return job.outer_optimizer == OuterOptimizerKind::kAverage && is_exact
             ? ContributionKind::kWeights
             : ContributionKind::kPseudoGradient;
}

// As the number of samples that a contribution was computed on: of a step that was skipped, say
// because its gradient was not finite. It counts with weight zero, and has no elements.
inline constexpr int64_t kSkippedSamples = -1;

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

// What one worker contributes to one element, times the scale of its push, is below this: far
// beyond any gradient or weight of a run that has not diverged, and its square is finite in fp32.
inline constexpr float kMaxContribution = 1e18f;
inline constexpr float kMaxContributionScale = 65536.0f;

}  // namespace lodestar
