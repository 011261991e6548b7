#include "worker/trainer/push_encoder.h"

#include <algorithm>

#include "common/random.h"
#include "kernels/codec/encoded_vectors.h"

namespace lodestar {
namespace {

// Workers must not round alike: their errors would not average out.
uint64_t NoiseKey(uint64_t seed, WorkerId worker) {
  constexpr uint64_t kNoiseStream = 0x9054;  // tells these random numbers from others of the seed
  const PhiloxBlock block = Philox(seed, kNoiseStream, worker.value());
  return uint64_t{block[0]} << 32 | block[1];
}

}  // namespace

void PushEncoder::Begin(const Registration& registration, Round round, float scale) {
  if (is_exact()) return;
  registration_ = &registration;
  noise_key_ = NoiseKey(registration.job.seed, registration.identity.worker);
  round_ = round;
  scale_ = scale;
  if (error_feedback_ &&
      (residual_.empty() || server_incarnation_ != registration.server_incarnation)) {
    residual_.assign(registration.layout.num_elements(), 0.0f);
    server_incarnation_ = registration.server_incarnation;
  }
  int64_t bytes = 0;
  places_.clear();
  for (const Bucket& bucket : registration.buckets) {
    places_.push_back(bytes);
    bytes += EncodedBytes(encoding_, bucket.range.size());
  }
  encoded_.resize(bytes);
}

absl::Span<const std::byte> PushEncoder::Encode(const Bucket& bucket, const float* values) {
  if (!is_exact()) {
    const float* const residual =
        residual_.empty() ? nullptr : residual_.data() + bucket.range.begin;
    EncodeWithResidual(encoding_, values, scale_, residual, bucket.range.size(),
                       {.key = noise_key_,
                        .stream = static_cast<uint64_t>(round_.value()),
                        .first_element = bucket.range.begin},
                       PlaceOf(bucket));
  }
  return Encoded(bucket, values);
}

absl::Span<const std::byte> PushEncoder::Encoded(const Bucket& bucket, const float* values) const {
  const auto bytes = static_cast<size_t>(EncodedBytes(encoding_, bucket.range.size()));
  if (is_exact()) return {reinterpret_cast<const std::byte*>(values), bytes};
  return {encoded_.data() + places_[bucket.index], bytes};
}

void PushEncoder::Commit(const float* vector, absl::Span<const uint32_t> late) {
  if (is_exact() || residual_.empty()) return;
  for (const Bucket& bucket : registration_->buckets) {
    if (std::find(late.begin(), late.end(), bucket.index) != late.end()) continue;
    UpdateResidual(encoding_, vector + bucket.range.begin, scale_, PlaceOf(bucket),
                   bucket.range.size(), residual_.data() + bucket.range.begin);
  }
}

}  // namespace lodestar
