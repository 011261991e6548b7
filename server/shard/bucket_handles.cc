// SPDX-License-Identifier: Apache-2.0

#include "server/shard/bucket_handles.h"

#include "server/shard/staging_pool.h"

namespace lodestar::shard {

StagedBucket::StagedBucket() = default;
StagedBucket::StagedBucket(StagedBucket&&) noexcept = default;
StagedBucket& StagedBucket::operator=(StagedBucket&&) noexcept = default;
StagedBucket::~StagedBucket() = default;

absl::Span<std::byte> StagedBucket::bytes() {
  if (slot_ == nullptr) return {};
  return {slot_->bytes(), static_cast<size_t>(params::EncodedBytes(key_.encoding, num_elements_))};
}

void StagedBucket::OnArrived(int64_t num_bytes, absl::Span<const std::byte> last) {
  if (slot_ == nullptr) return;
  slot_->SetReceived(num_bytes);
  // A top-k encoding begins with the positions of the sent elements. CheckBytes() needs all
  // positions at once, so nothing can be checked while bytes arrive.
  if (!numbers_.has_value() || key_.encoding.is_topk()) return;
  numbers_->Look(slot_->bytes(), num_bytes, last);
}

bool StagedBucket::is_revoked() const { return slot_ != nullptr && slot_->is_revoked(); }

std::shared_ptr<PushSilence> StagedBucket::silence() const {
  return slot_ == nullptr ? nullptr : slot_->silence();
}

absl::Span<float> StagedBucket::data() {
  return {reinterpret_cast<float*>(bytes().data()), bytes().size() / sizeof(float)};
}

}  // namespace lodestar::shard
