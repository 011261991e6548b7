// SPDX-License-Identifier: Apache-2.0

// MixedContribution makes contributions in a wire encoding. Only the blocks with averaged tensors
// (Layout::is_averaged()) are sent unencoded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/params/layout.h"
#include "worker/trainer/contribution_bytes.h"

namespace lodestar::trainer {

class MixedContribution final : public ContributionBytes {
 public:
  // Requires: both contributions are made from the same vector on the same device. `layout` must
  // outlive the object.
  MixedContribution(const params::Layout* layout, std::unique_ptr<ContributionBytes> encoded,
                    std::unique_ptr<ContributionBytes> exact)
      : layout_(layout), encoded_(std::move(encoded)), exact_(std::move(exact)) {}

  params::Encoding encoding() const override { return encoded_->encoding(); }
  bool is_inline() const override { return encoded_->is_inline() && exact_->is_inline(); }
  void Begin(const messages::Registration& registration, Round round, float scale) override;
  kernels::EventId Prepare(const params::Bucket& bucket) override {
    return BytesFor(bucket.block).Prepare(bucket);
  }
  kernels::EventId PrepareOnDevice(const params::Bucket& bucket) override {
    return BytesFor(bucket.block).PrepareOnDevice(bucket);
  }
  // Both contributions are made on the same device, so either of them can await any event.
  absl::Status Await(kernels::EventId prepared) override { return encoded_->Await(prepared); }
  absl::Span<const std::byte> Of(const params::Bucket& bucket) const override {
    return BytesFor(bucket.block).Of(bucket);
  }
  std::optional<client::DevicePayload> OnDevice(const params::Bucket& bucket) override {
    return BytesFor(bucket.block).OnDevice(bucket);
  }
  void Commit(absl::Span<const uint32_t> late) override;

 private:
  ContributionBytes& BytesFor(int block) const {
    return layout_->is_averaged(block) ? *exact_ : *encoded_;
  }

  const params::Layout* const layout_;
  const std::unique_ptr<ContributionBytes> encoded_;
  const std::unique_ptr<ContributionBytes> exact_;
  // The buckets of averaged tensors in the present contribution.
  std::vector<uint32_t> averaged_;
};

}  // namespace lodestar::trainer
