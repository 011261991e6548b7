#include "server/shard/contribution_mean.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/check.h"
#include "kernels/codec/encoded_vectors.h"
#include "kernels/reduce.h"

namespace lodestar {
namespace {

static_assert(kMaxRobustContributions <= kMaxTrimmedValues);

// A page of staging space is as large as the largest bucket.
bool IsWellFilled(int64_t page_elements, int64_t num_elements) {
  return num_elements >= page_elements / 4 * 3;
}

void Scale(Page& page, float factor, int64_t num_elements) {
  if (factor == 1.0f) return;
  AccumulateScaled(page.data(), page.data(), factor, num_elements, Accumulate::kSet);
}

// One page, to which every contribution is added as it comes. Its last bits depend on the order.
class WeightedSum final : public ContributionMean {
 public:
  WeightedSum(int64_t num_elements, PagePool& pages) : num_elements_(num_elements), pages_(pages) {}

  void Add(Encoding encoding, const std::byte* values, const MeanShare& share) override {
    const bool is_first = sum_ == nullptr;
    if (is_first) sum_ = pages_.Allocate(num_elements_);
    if (sum_ == nullptr) return;
    AccumulateDecoded(encoding, values, num_elements_, share.factor, sum_->data(),
                      is_first ? Accumulate::kSet : Accumulate::kAdd);
  }

  bool CanAdopt(int64_t page_elements) const override {
    return sum_ == nullptr && IsWellFilled(page_elements, num_elements_);
  }

  void Adopt(std::shared_ptr<Page> values, const MeanShare& share) override {
    LODESTAR_CHECK(CanAdopt(values->size())) << values->size() << " for " << num_elements_;
    sum_ = std::move(values);
    Scale(*sum_, share.factor, num_elements_);
  }

  void Finish(float rescale) override {
    if (sum_ != nullptr) Scale(*sum_, rescale, num_elements_);
  }

  void Approach(const float* base, float share) override {
    if (sum_ == nullptr) return;
    Scale(*sum_, share, num_elements_);
    AccumulateScaled(sum_->data(), base, 1.0f - share, num_elements_, Accumulate::kAdd);
  }

  const Page* mean() const override { return sum_.get(); }
  void Clear() override { sum_ = nullptr; }

 private:
  const int64_t num_elements_;
  PagePool& pages_;
  std::shared_ptr<Page> sum_;
};

// A page for each contribution until the round is over. Any order gives the same bits.
class TrimmedContributions final : public ContributionMean {
 public:
  TrimmedContributions(const RobustMean& kind, int64_t num_elements, PagePool& pages)
      : kind_(kind), num_elements_(num_elements), pages_(pages) {}

  void Add(Encoding encoding, const std::byte* values, const MeanShare& share) override {
    if (!IsWanted(share)) return;
    std::shared_ptr<Page> page = pages_.Allocate(num_elements_);
    if (page == nullptr) return;
    AccumulateDecoded(encoding, values, num_elements_, share.scale, page->data(), Accumulate::kSet);
    Keep(std::move(page), share);
  }

  bool CanAdopt(int64_t page_elements) const override {
    return IsWellFilled(page_elements, num_elements_);
  }

  void Adopt(std::shared_ptr<Page> values, const MeanShare& share) override {
    if (!IsWanted(share)) return;
    Scale(*values, share.scale, num_elements_);
    Keep(std::move(values), share);
  }

  void Finish(float rescale) override {
    if (contributions_.empty()) {
      if (mean_ != nullptr) Scale(*mean_, rescale, num_elements_);
      return;
    }
    std::vector<const float*> values;
    std::vector<float> weights;
    bool are_alike = true;
    for (const Contribution& contribution : contributions_) {
      values.push_back(contribution.page->data());
      weights.push_back(static_cast<float>(contribution.weight));
      are_alike = are_alike && contribution.weight == contributions_.front().weight;
    }
    if (are_alike) weights.clear();
    mean_ = contributions_.front().page;
    TrimmedMean(mean_->data(), values, weights, kind_.TrimOf(static_cast<int>(values.size())),
                num_elements_);
    contributions_.clear();
  }

  void Approach(const float*, float) override {}

  const Page* mean() const override { return mean_.get(); }
  void Clear() override {
    contributions_.clear();
    mean_ = nullptr;
  }

 private:
  struct Contribution {
    uint32_t order;
    int64_t weight;
    std::shared_ptr<Page> page;
  };

  // The coordinator lets no more than kMaxRobustContributions come.
  bool IsWanted(const MeanShare& share) const {
    return share.weight > 0 && contributions_.size() < kMaxRobustContributions;
  }

  void Keep(std::shared_ptr<Page> page, const MeanShare& share) {
    const auto position =
        std::find_if(contributions_.begin(), contributions_.end(),
                     [&share](const Contribution& other) { return share.order < other.order; });
    contributions_.insert(position, {share.order, share.weight, std::move(page)});
  }

  const RobustMean kind_;
  const int64_t num_elements_;
  PagePool& pages_;
  std::vector<Contribution> contributions_;  // ascending by order
  std::shared_ptr<Page> mean_;
};

}  // namespace

std::unique_ptr<ContributionMean> MakeContributionMean(const RobustMean& kind, int64_t num_elements,
                                                       PagePool& pages) {
  if (!kind.is_robust()) return std::make_unique<WeightedSum>(num_elements, pages);
  return std::make_unique<TrimmedContributions>(kind, num_elements, pages);
}

}  // namespace lodestar
