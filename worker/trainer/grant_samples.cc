// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/grant_samples.h"

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "common/job/fragment_plan.h"

namespace lodestar::trainer {

absl::Status CheckGrant(const messages::Grant& grant, const job::JobSpec& job,
                        const data::Dataset& dataset) {
  if (grant.num_heldout_samples > 0 && dataset.num_heldout_samples() == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the grant of round ", grant.round.value(), " has ", grant.num_heldout_samples,
                     " held-out samples to evaluate, but this worker's data set has none; use the "
                     "same release on both sides"));
  }
  if (grant.kind != messages::Grant::Kind::kTrain) return absl::OkStatus();
  const bool is_deferred = job::DefersContributions(job);
  if (is_deferred && grant.local_steps == 0 && grant.num_samples == 0) return absl::OkStatus();
  const int most_steps = job::StepsOfWindow(job, grant.round);
  const bool is_by_speed = job.balance == job::Balance::kSpeed;
  // Balance by speed gives more work to fast workers. Without rosters, a grant may have fewer steps
  // than the window. With rosters, a step may have more samples than job::StepSamples().
  const int least_steps = is_by_speed && !job::HasRosters(job) ? 1 : most_steps;
  const int64_t step_samples =
      is_by_speed && job::HasRosters(job) ? job::kMaxStepSamples : job::StepSamples(job);
  const int64_t steps = grant.local_steps;
  if (steps >= least_steps && steps <= most_steps && grant.num_samples >= steps &&
      grant.num_samples <= step_samples * steps &&
      static_cast<int64_t>(grant.learning_rates.size()) == steps) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the grant of round ", grant.round.value(), " has ", grant.num_samples, " samples in ", steps,
      " local steps, but the job has at most ", step_samples, " samples in each of ", most_steps,
      " steps; use the same release on both sides"));
}

SampleSpan SamplesOfStep(const messages::Grant& grant, int step) {
  const int64_t begin = grant.num_samples * step / grant.local_steps;
  const int64_t end = grant.num_samples * (step + 1) / grant.local_steps;
  return {grant.first_sample + begin, end - begin, grant.first_position + begin};
}

absl::Status ReadTrainSpan(const data::Dataset& dataset, const data::SampleOrder& order,
                           SampleSpan span, data::HostBatch* batch) {
  std::vector<data::SampleRef> samples;
  samples.reserve(span.count);
  for (int64_t i = 0; i < span.count; ++i) samples.push_back(order.At(span.first + i));
  batch->first_position = span.first_position;
  return dataset.ReadTrain(samples, batch);
}

int64_t HeldoutSampleAt(int64_t k, int64_t n, int64_t num_heldout) {
  return static_cast<int64_t>(absl::int128(k) * num_heldout / n);
}

}  // namespace lodestar::trainer
