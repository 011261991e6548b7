#include "server/shard/staged_bucket.h"

#include "server/shard/staging_pool.h"

namespace lodestar {

StagedBucket::StagedBucket() = default;
StagedBucket::StagedBucket(StagedBucket&&) noexcept = default;
StagedBucket& StagedBucket::operator=(StagedBucket&&) noexcept = default;
StagedBucket::~StagedBucket() = default;

absl::Span<float> StagedBucket::data() {
  if (slot_ == nullptr) return {};
  return {slot_->data(), static_cast<size_t>(num_elements_)};
}

}  // namespace lodestar
