// ExactContribution: contributions in fp32, which are the elements of a host mirror.
#pragma once

#include "worker/trainer/contribution_bytes.h"
#include "worker/trainer/host_mirror.h"

namespace lodestar {

class ExactContribution final : public ContributionBytes {
 public:
  // `vector` outlives the object.
  explicit ExactContribution(HostMirror* vector) : vector_(vector) {}

  Encoding encoding() const override { return Encoding::kFp32; }
  bool is_inline() const override { return vector_->is_shared(); }
  void Begin(const Registration&, Round, float) override {}
  EventId Prepare(const Bucket& bucket) override { return vector_->ToHost(bucket.range); }
  absl::Status Await(EventId prepared) override { return vector_->Await(prepared); }
  absl::Span<const std::byte> Of(const Bucket& bucket) const override {
    const float* const elements = vector_->data() + bucket.range.begin;
    return {reinterpret_cast<const std::byte*>(elements), bucket.range.size() * sizeof(float)};
  }
  void Commit(absl::Span<const uint32_t>) override {}

 private:
  HostMirror* const vector_;
};

}  // namespace lodestar
