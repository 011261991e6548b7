// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/round_runner_factory.h"

#include <tuple>

#include "common/messages/contribution.h"
#include "worker/trainer/exchange_state.h"
#include "worker/trainer/gradient_rounds.h"
#include "worker/trainer/inner_optimizer.h"
#include "worker/trainer/local_sgd_rounds.h"
#include "worker/trainer/overlapped_rounds.h"
#include "worker/trainer/weights_merge.h"

namespace lodestar::trainer {

namespace {

// Returns the norm to which the worker clips its gradients. 0 means that it does not clip. Without
// rosters, each gradient is applied alone, so the worker clips it. With rosters, the servers clip
// the average of a round instead.
double ClientClipNorm(const job::JobSpec& job) {
  return job::HasRosters(job) ? 0.0 : job.clip_norm;
}

// Returns true if each round begins with the weights at the end of the last round. With a quorum,
// or without rosters, this is not certain.
bool BeginsWhereTheLastEnds(const job::JobSpec& job) {
  return job::HasRosters(job) && job.quorum == 0;
}

// Returns the settings that OverlappedRounds depends on.
auto OverlapOf(const job::JobSpec& job) {
  return std::tuple(job.local_steps, job.fragments, job.overlap_steps, job.merge, job.merge_alpha,
                    job.overlap_rounds, job.outer_optimizer, job.outer_learning_rate,
                    job.outer_momentum, job.clip_norm);
}

absl::StatusOr<std::unique_ptr<RoundRunner>> Make(const job::JobSpec& job,
                                                  const RoundRunnerDeps& deps) {
  if (!job::HasLocalSteps(job)) return GradientRounds::Create(job, deps, ClientClipNorm(job));
  if (job::DefersContributions(job)) return OverlappedRounds::Create(job, deps);
  return LocalSgdRounds::Create(job, deps);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RoundRunner>> MakeRoundRunner(const job::JobSpec& job,
                                                             const RoundRunnerDeps& deps) {
  RoundRunnerDeps possible = deps;
  possible.pulls_ahead = deps.pulls_ahead && BeginsWhereTheLastEnds(job);
  return Make(job, possible);
}

int64_t LocalStepsDeviceBytes(const job::JobSpec& job, const params::Layout& layout) {
  if (!job::HasLocalSteps(job)) return 0;
  // With deferred contributions, the runner needs vectors for the servers' weights, for the
  // contribution, and for the merge. Otherwise it needs one vector, for the weights at the start of
  // the round.
  const int runner_vectors = job::DefersContributions(job) ? 2 + NumMergeVectors(job) : 1;
  const int vectors = InnerOptimizer::NumStateVectors(job.optimizer.kind) + runner_vectors;
  return vectors * layout.num_elements() * static_cast<int64_t>(sizeof(float));
}

int64_t RunnerDeviceBytes(const job::JobSpec& job, const params::Layout& layout,
                          bool memory_is_host) {
  return ExchangeState::DeviceBytes(job, layout, memory_is_host) +
         LocalStepsDeviceBytes(job, layout);
}

int64_t RunnerPinnedBytes(const job::JobSpec& job, const params::Layout& layout,
                          bool keeps_residual) {
  const bool contributes_weights =
      job::HasLocalSteps(job) && !job::DefersContributions(job) &&
      messages::RoundContributionKind(job) == messages::ContributionKind::kWeights;
  return ExchangeState::PinnedBytes(job, layout, contributes_weights, keeps_residual);
}

bool HaveSameRunner(const job::JobSpec& a, const job::JobSpec& b) {
  return a.mode == b.mode && a.optimizer == b.optimizer && ClientClipNorm(a) == ClientClipNorm(b) &&
         a.push_encoding == b.push_encoding && a.pull_encoding == b.pull_encoding &&
         a.error_feedback == b.error_feedback && a.feedback_decay == b.feedback_decay &&
         BeginsWhereTheLastEnds(a) == BeginsWhereTheLastEnds(b) &&
         messages::RoundContributionKind(a) == messages::RoundContributionKind(b) &&
         OverlapOf(a) == OverlapOf(b);
}

}  // namespace lodestar::trainer
