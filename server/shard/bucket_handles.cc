#include "server/shard/bucket_handles.h"

#include "server/shard/staging_pool.h"

namespace lodestar {

StagedBucket::StagedBucket() = default;
StagedBucket::StagedBucket(StagedBucket&&) noexcept = default;
StagedBucket& StagedBucket::operator=(StagedBucket&&) noexcept = default;
StagedBucket::~StagedBucket() = default;

absl::Span<std::byte> StagedBucket::bytes() {
  if (slot_ == nullptr) return {};
  return {slot_->bytes(), static_cast<size_t>(EncodedBytes(key_.encoding, num_elements_))};
}

absl::Span<float> StagedBucket::data() {
  return {reinterpret_cast<float*>(bytes().data()), bytes().size() / sizeof(float)};
}

}  // namespace lodestar
