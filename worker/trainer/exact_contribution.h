// SPDX-License-Identifier: Apache-2.0

// ExactContribution makes contributions in fp32. The bytes are the elements of a HostMirror.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/trainer/contribution_bytes.h"
#include "worker/trainer/host_mirror.h"

namespace lodestar::trainer {

class ExactContribution final : public ContributionBytes {
 public:
  // `vector` must outlive the object.
  explicit ExactContribution(HostMirror* vector) : vector_(vector) {}

  params::Encoding encoding() const override { return params::Encoding::kFp32; }
  bool is_inline() const override { return vector_->is_shared(); }
  void Begin(const messages::Registration& registration, Round, float) override {
    is_on_device_.assign(registration.buckets().size(), 0);
  }
  kernels::EventId Prepare(const params::Bucket& bucket) override {
    return vector_->ToHost(bucket.range);
  }
  kernels::EventId PrepareOnDevice(const params::Bucket& bucket) override {
    if (is_inline()) return Prepare(bucket);
    is_on_device_[bucket.index] = 1;
    return vector_->Computed();
  }
  absl::Status Await(kernels::EventId prepared) override { return vector_->Await(prepared); }
  absl::Span<const std::byte> Of(const params::Bucket& bucket) const override {
    const float* const elements = vector_->data() + bucket.range.begin;
    return {reinterpret_cast<const std::byte*>(elements), bucket.range.size() * sizeof(float)};
  }
  std::optional<client::DevicePayload> OnDevice(const params::Bucket& bucket) override {
    if (bucket.index >= is_on_device_.size() || is_on_device_[bucket.index] == 0) {
      return std::nullopt;
    }
    return client::DevicePayload{vector_, HostMirror::ByteOf(bucket.range.begin),
                                 HostMirror::ByteOf(bucket.range.size())};
  }
  void Commit(absl::Span<const uint32_t>) override {}

 private:
  HostMirror* const vector_;
  // True for each bucket whose bytes are only in the device's memory. An entry may be read only
  // after Prepare() or PrepareOnDevice() of the bucket.
  std::vector<uint8_t> is_on_device_;
};

}  // namespace lodestar::trainer
