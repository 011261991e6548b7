#include "worker/trainer/grant_samples.h"

#include "absl/numeric/int128.h"

namespace lodestar {

SampleSpan SamplesOfStep(const Grant& grant, int step) {
  const int64_t begin = grant.num_samples * step / grant.local_steps;
  const int64_t end = grant.num_samples * (step + 1) / grant.local_steps;
  return {grant.first_sample + begin, end - begin, grant.first_position + begin};
}

absl::Status ReadTrainSpan(const Dataset& dataset, const SampleOrder& order, SampleSpan span,
                           HostBatch* batch) {
  std::vector<SampleRef> samples;
  samples.reserve(span.count);
  for (int64_t i = 0; i < span.count; ++i) samples.push_back(order.At(span.first + i));
  batch->first_position = span.first_position;
  return dataset.ReadTrain(samples, batch);
}

int64_t HeldoutSampleAt(int64_t k, int64_t n, int64_t num_heldout) {
  return static_cast<int64_t>(absl::int128(k) * num_heldout / n);
}

}  // namespace lodestar
