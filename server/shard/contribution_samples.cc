// SPDX-License-Identifier: Apache-2.0

#include "server/shard/contribution_samples.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/runtime/random.h"
#include "kernels/codec/encoded_vectors.h"
#include "kernels/vectors/reduce.h"

namespace lodestar::shard {
namespace {

constexpr int64_t kBlock = ContributionSamples::kSampledBlock;

int64_t StrideFor(int64_t num_elements, int64_t max_elements) {
  const int64_t blocks = (num_elements + kBlock - 1) / kBlock;
  const int64_t sampled =
      std::clamp<int64_t>(max_elements / kBlock, 1, std::max<int64_t>(blocks, 1));
  return (blocks + sampled - 1) / sampled;
}

}  // namespace

ContributionSamples::ContributionSamples(int64_t num_elements, int64_t max_elements)
    : num_elements_(num_elements),
      is_looked_at_(max_elements > 0),
      stride_(StrideFor(num_elements, max_elements)) {}

void ContributionSamples::Add(WorkerId worker, Incarnation incarnation, Round round,
                              params::Encoding encoding, const std::byte* encoded, float scale,
                              const float* base) {
  if (!is_looked_at_ || samples_.size() == kMaxWorkers) return;
  Sample sample = {.worker = worker, .incarnation = incarnation};
  const int64_t offset = Philox(0, 0, static_cast<uint64_t>(round.value()))[0] % stride_;
  for (int64_t begin = offset * kBlock; begin < num_elements_; begin += stride_ * kBlock) {
    const int64_t size = std::min(kBlock, num_elements_ - begin);
    const size_t end = sample.elements.size();
    sample.elements.resize(end + size);
    float* const elements = sample.elements.data() + end;
    codec::DecodePart(encoding, encoded, num_elements_, begin, size, elements);
    vectors::AccumulateScaled(elements, elements, scale, size, kernels::Accumulate::kSet);
    if (base != nullptr)
      vectors::AccumulateScaled(elements, base + begin, -scale, size, kernels::Accumulate::kAdd);
  }
  double square_sum = 0.0;
  for (const float element : sample.elements) square_sum += double{element} * double{element};
  const double length = std::sqrt(square_sum);
  for (float& element : sample.elements) {
    element = length > 0.0 ? static_cast<float>(element / length) : 0.0f;
  }
  samples_.push_back(std::move(sample));
}

std::vector<DirectionPart> ContributionSamples::EndRound() {
  std::vector<Sample> samples;
  samples.swap(samples_);
  std::vector<DirectionPart> parts;
  if (samples.size() < 2) return parts;
  std::vector<double> sum(samples[0].elements.size(), 0.0);
  for (const Sample& sample : samples) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += sample.elements[i];
  }
  for (const Sample& sample : samples) {
    DirectionPart part = {.worker = sample.worker, .incarnation = sample.incarnation};
    for (size_t i = 0; i < sum.size(); ++i) {
      const double own = sample.elements[i];
      const double others = sum[i] - own;
      part.product += own * others;
      part.own_square += own * own;
      part.others_square += others * others;
    }
    parts.push_back(part);
  }
  return parts;
}

}  // namespace lodestar::shard
