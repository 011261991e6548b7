// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/step_forecast.h"

#include <limits>
#include <utility>

#include "worker/trainer/grant_samples.h"

namespace lodestar::trainer {

void StepForecast::OnGrant(const messages::Grant& grant) {
  if (grant.kind != messages::Grant::Kind::kTrain) {
    if (last.has_value()) step = last->local_steps - 1;
    return;
  }
  const bool is_again =
      last.has_value() && last->round == grant.round && last->first_sample == grant.first_sample;
  if (!is_again) before = std::move(last);
  last = grant;
  step = -1;
}

std::optional<ExpectedStep> StepForecast::Expect(int ahead) const {
  if (!last.has_value() || !order.has_value() || ahead < 1) return std::nullopt;
  const int64_t index = int64_t{step} + ahead;
  ExpectedStep expected = {.rounds_ahead = index / last->local_steps,
                           .step = static_cast<int>(index % last->local_steps),
                           .num_steps = last->local_steps,
                           .samples = {}};
  // If restarted servers have gone back to an earlier sample, the distance between the last two
  // grants is not usable.
  const bool has_distance = before.has_value() && last->first_sample > before->first_sample;
  const int64_t distance =
      has_distance ? last->first_sample - before->first_sample : last->num_samples;
  const SampleSpan span = SamplesOfStep(*last, expected.step);
  const int64_t most = std::numeric_limits<int64_t>::max() - span.first - span.count;
  if (expected.rounds_ahead > most / distance) return std::nullopt;
  const int64_t first = span.first + expected.rounds_ahead * distance;
  expected.samples.reserve(span.count);
  for (int64_t i = 0; i < span.count; ++i) expected.samples.push_back(order->At(first + i));
  return expected;
}

}  // namespace lodestar::trainer
