#include "worker/trainer/heldout_evaluator.h"

#include <algorithm>
#include <vector>

#include "common/status_macros.h"
#include "worker/trainer/grant_samples.h"

namespace lodestar {
namespace {

// Samples read at once: bounds the memory of a batch, not the arithmetic.
constexpr int64_t kSamplesPerRead = 256;

}  // namespace

absl::Status EvaluateHeldout(const LifeContext& life, const WorkGrant& grant,
                             const RoundRunnerDeps& deps, WeightsPull* pull, RoundReport* report) {
  if (grant.num_heldout_samples == 0) return absl::OkStatus();
  const absl::Time start = deps.clock->Now();
  const absl::Duration blocked_before = pull->blocked();
  TraceSpan span(deps.trace, "training", "evaluation");
  const Dataset& dataset = *deps.dataset;
  HostBatch batch;
  std::vector<int64_t> samples;
  const int64_t end = grant.first_heldout_sample + grant.num_heldout_samples;
  for (int64_t k = grant.first_heldout_sample; k < end; k += kSamplesPerRead) {
    RETURN_IF_ERROR(life.Check());
    samples.clear();
    for (int64_t i = k; i < std::min(end, k + kSamplesPerRead); ++i) {
      samples.push_back(
          HeldoutSampleAt(i, grant.evaluation_set_size, dataset.num_heldout_samples()));
    }
    RETURN_IF_ERROR(dataset.ReadHeldout(samples, &batch));
    ASSIGN_OR_RETURN(const BatchResult result, deps.model->Evaluate(batch, pull));
    report->heldout_loss_sum += result.loss_sum;
    report->heldout_correct += result.num_correct;
    report->heldout_predictions += result.num_predictions;
  }
  report->evaluation += deps.clock->Now() - start - (pull->blocked() - blocked_before);
  return absl::OkStatus();
}

}  // namespace lodestar
