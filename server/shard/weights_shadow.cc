#include "server/shard/weights_shadow.h"

#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/random.h"
#include "kernels/codec/encoded_vectors.h"

namespace lodestar {
namespace {

// Tells these random numbers from others of the same seed.
constexpr uint64_t kNoiseStream = 0x9A11;

uint64_t NoiseKey(uint64_t seed) {
  const PhiloxBlock block = Philox(seed, kNoiseStream, 0);
  return uint64_t{block[0]} << 32 | block[1];
}

}  // namespace

WeightsShadow::WeightsShadow(const Config& config, ElementRange range, PagePool& pages)
    : config_(config), range_(range), pages_(pages) {}

void WeightsShadow::CopyFrom(const Page& weights, std::shared_ptr<Page>& page) {
  if (page == nullptr || page->is_lent()) page = pages_.Allocate(range_.size());
  std::memcpy(page->data(), weights.data(), range_.size() * sizeof(float));
}

void WeightsShadow::Reset(const Page& weights, Version version) {
  CopyFrom(weights, shadow_);
  if (!config_.error_feedback) CopyFrom(weights, last_weights_);
  changes_.clear();
  version_ = version;
}

void WeightsShadow::Advance(const Page& weights, Version version) {
  LODESTAR_CHECK(shadow_ != nullptr && version == version_ + 1)
      << "version " << version << " after " << version_;
  const int64_t n = range_.size();
  const int64_t floats = (EncodedBytes(config_.encoding, n) + 3) / 4;
  const std::shared_ptr<Page> change = pages_.Allocate(floats);
  auto* const encoded = reinterpret_cast<std::byte*>(change->data());
  const Page& base = config_.error_feedback ? *shadow_ : *last_weights_;
  EncodeChange(config_.encoding, weights.data(), base.data(), n,
               {.key = NoiseKey(config_.seed),
                .stream = static_cast<uint64_t>(version.value()),
                .first_element = range_.begin},
               encoded);
  if (shadow_->is_lent()) {
    std::shared_ptr<Page> moved = pages_.Allocate(n);
    std::memcpy(moved->data(), shadow_->data(), n * sizeof(float));
    shadow_ = std::move(moved);
  }
  AccumulateDecoded(config_.encoding, encoded, n, 1.0f, shadow_->data(), Accumulate::kAdd);
  if (!config_.error_feedback) CopyFrom(weights, last_weights_);
  changes_.push_back(change);
  if (static_cast<int64_t>(changes_.size()) > ChangesKept(config_.encoding, n)) {
    changes_.pop_front();
  }
  version_ = version;
}

PublishedBucket WeightsShadow::Lend(std::optional<Version> held) const {
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

}  // namespace lodestar
