// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/shadow_replica.h"

#include <algorithm>
#include <cstring>

#include "kernels/codec/encoded_vectors.h"
#include "kernels/vectors/reduce.h"

namespace lodestar::trainer {

int64_t ShadowReplica::Bytes(params::Encoding encoding, int64_t num_elements) {
  if (encoding == params::Encoding::kFp32) return 0;
  return num_elements * static_cast<int64_t>(sizeof(float)) +
         params::ChangesKept(encoding, num_elements) * params::EncodedBytes(encoding, num_elements);
}

void ShadowReplica::Attach(const messages::Registration& registration) {
  if (!held_.empty() && server_incarnation_ == registration.server_incarnation) return;
  server_incarnation_ = registration.server_incarnation;
  shadow_.resize(registration.layout().num_elements());
  held_.assign(registration.buckets().size(), std::nullopt);
  places_.clear();
  int64_t bytes = 0;
  for (const params::Bucket& bucket : registration.buckets()) {
    places_.push_back(bytes);
    const int64_t elements = bucket.range.size();
    bytes += params::ChangesKept(encoding_, elements) * params::EncodedBytes(encoding_, elements);
  }
  changes_.resize(bytes);
}

client::PullTarget ShadowReplica::TargetOf(const params::Bucket& bucket, float* weights) {
  const int64_t elements = bucket.range.size();
  const int64_t room =
      params::ChangesKept(encoding_, elements) * params::EncodedBytes(encoding_, elements);
  return {.bucket = bucket.index,
          .destination = {weights, static_cast<size_t>(elements)},
          .held = held_[bucket.index],
          .changes = {changes_.data() + places_[bucket.index], static_cast<size_t>(room)}};
}

void ShadowReplica::Complete(const params::Bucket& bucket, const client::PulledBucket& pulled,
                             float* weights) {
  const int64_t elements = bucket.range.size();
  float* const shadow = shadow_.data() + bucket.range.begin;
  if (pulled.num_changes == 0) {
    std::memcpy(shadow, weights, elements * sizeof(float));
  } else {
    const std::byte* const changes = changes_.data() + places_[bucket.index];
    const int64_t change_bytes = params::EncodedBytes(encoding_, elements);
    const bool is_long = shadow_.size() * sizeof(float) >= client::kLongPullBytes;
    // Works in parts that fit into the first-level cache.
    for (int64_t begin = 0; begin < elements; begin += params::kWholeBlocks) {
      const int64_t size = std::min(params::kWholeBlocks, elements - begin);
      const std::byte* const part = changes + params::EncodedBytes(encoding_, begin);
      for (int64_t i = 0; i < pulled.num_changes; ++i) {
        codec::AccumulateDecoded(encoding_, part + i * change_bytes, size, 1.0f, shadow + begin,
                                 kernels::Accumulate::kAdd);
      }
      if (is_long) {
        vectors::CopyPastCaches(weights + begin, shadow + begin, size);
      } else {
        std::copy_n(shadow + begin, size, weights + begin);
      }
    }
  }
  held_[bucket.index] = pulled.version;
}

}  // namespace lodestar::trainer
