// SPDX-License-Identifier: Apache-2.0

#include "server/shard/bucket_shadow.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/runtime/check.h"
#include "common/runtime/random.h"
#include "kernels/codec/encoded_vectors.h"

namespace lodestar::shard {
namespace {

// Makes these random numbers differ from other random numbers of the same seed.
constexpr uint64_t kNoiseStream = 0x9A11;

uint64_t NoiseKey(uint64_t seed) {
  const PhiloxBlock block = Philox(seed, kNoiseStream, 0);
  return uint64_t{block[0]} << 32 | block[1];
}

}  // namespace

BucketShadow::BucketShadow(const Config& config, params::ElementRange range, PagePool& pages)
    : config_(config), range_(range), pages_(pages) {}

bool BucketShadow::MakeWritable(std::shared_ptr<Page>& page) {
  if (page != nullptr && !page->is_lent()) return true;
  std::shared_ptr<Page> other = pages_.Allocate(range_.size());
  if (other == nullptr) return false;
  if (page != nullptr) std::memcpy(other->data(), page->data(), range_.size() * sizeof(float));
  page = std::move(other);
  return true;
}

bool BucketShadow::Allocate() {
  return MakeWritable(shadow_) && (config_.error_feedback || MakeWritable(last_weights_));
}

void BucketShadow::Reset(const Page& weights, Version version) {
  const size_t bytes = range_.size() * sizeof(float);
  std::memcpy(shadow_->data(), weights.data(), bytes);
  if (!config_.error_feedback) std::memcpy(last_weights_->data(), weights.data(), bytes);
  changes_.clear();
  version_ = version;
}

void BucketShadow::Restore(const std::byte* elements, const Page& weights, Version version) {
  Reset(weights, version);
  std::memcpy(shadow_->data(), elements, range_.size() * sizeof(float));
}

void BucketShadow::BeginAdvance(Version version) {
  LODESTAR_CHECK(shadow_ != nullptr && version == version_ + 1)
      << "version " << version << " after " << version_;
  version_ = version;
  next_change_ = pages_.Allocate((params::EncodedBytes(config_.encoding, range_.size()) + 3) / 4);
  if (!MakeWritable(shadow_)) next_change_ = nullptr;
}

// Encodes the change to `weights`, and adds the encoded change to the shadow. With error feedback
// the change is the difference from the shadow. Without error feedback it is the difference from
// the last weights.
void BucketShadow::AdvancePart(int64_t begin, absl::Span<const float> weights) {
  if (next_change_ == nullptr) return;
  const auto size = static_cast<int64_t>(weights.size());
  std::byte* const encoded = reinterpret_cast<std::byte*>(next_change_->data()) +
                             params::EncodedBytes(config_.encoding, begin);
  float* const shadow = shadow_->data() + begin;
  const kernels::Rounding rounding = {.kind = config_.error_feedback
                                                  ? kernels::Rounding::Kind::kToNearest
                                                  : kernels::Rounding::Kind::kStochastic,
                                      .key = NoiseKey(config_.seed),
                                      .stream = static_cast<uint64_t>(version_.value()),
                                      .first_element = range_.begin + begin};
  if (config_.error_feedback) {
    return codec::EncodeChangeAndAdvance(config_.encoding, weights.data(), shadow, size, rounding,
                                         encoded);
  }
  float* const last_weights = last_weights_->data() + begin;
  codec::EncodeChange(config_.encoding, weights.data(), last_weights, size, rounding, encoded);
  codec::AccumulateDecoded(config_.encoding, encoded, size, 1.0f, shadow,
                           kernels::Accumulate::kAdd);
  std::copy(weights.begin(), weights.end(), last_weights);
}

void BucketShadow::EndAdvance() {
  if (next_change_ == nullptr) return changes_.clear();
  // Lend() needs no lock here, because no other thread has the page yet.
  changes_.push_back(Page::Lend(std::exchange(next_change_, nullptr)));
  if (static_cast<int64_t>(changes_.size()) >
      params::ChangesKept(config_.encoding, range_.size())) {
    changes_.pop_front();
  }
}

PublishedBucket BucketShadow::Lend(std::optional<Version> held) const {
  const auto num_kept = static_cast<int64_t>(changes_.size());
  if (held.has_value() && *held < version_ && version_ - *held <= num_kept) {
    const auto first = changes_.end() - (version_ - *held);
    return {.page = nullptr,
            .num_elements = range_.size(),
            .version = version_,
            .encoding = config_.encoding,
            .changes = {first, changes_.end()}};
  }
  return {Page::Lend(shadow_), range_.size(), version_};
}

}  // namespace lodestar::shard
