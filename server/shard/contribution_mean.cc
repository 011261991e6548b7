// SPDX-License-Identifier: Apache-2.0

#include "server/shard/contribution_mean.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "common/runtime/check.h"
#include "kernels/codec/encoded_vectors.h"
#include "kernels/vectors/reduce.h"

namespace lodestar::shard {
namespace {

static_assert(job::kMaxRobustContributions <= vectors::kMaxTrimmedValues);

// Returns true if the bucket fills most of the page. A page of staging space has the size of the
// largest bucket, so adopting it for a small bucket would waste memory.
bool IsWellFilled(int64_t page_elements, int64_t num_elements) {
  return num_elements >= page_elements / 4 * 3;
}

void Scale(Page& page, float factor, int64_t num_elements) {
  if (factor == 1.0f) return;
  vectors::AccumulateScaled(page.data(), page.data(), factor, num_elements,
                            kernels::Accumulate::kSet);
}

void DivideWherePositive(float* sums, const float* weights, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sums[i] = weights[i] > 0.0f ? sums[i] / weights[i] : 0.0f;
}

// Decodes the encoded elements at the start of `values`, and multiplies them by `factor`. Begins
// with the last block, because a decoded block overwrites only encoded blocks at its place or
// behind.
void DecodeInPlace(params::Encoding encoding, float factor, int64_t num_elements, float* values) {
  constexpr int64_t kSize = params::kWholeBlocks;
  std::byte encoded[kSize * sizeof(float)];
  const auto* const all = reinterpret_cast<const std::byte*>(values);
  for (int64_t begin = (num_elements - 1) / kSize * kSize; begin >= 0; begin -= kSize) {
    const int64_t size = std::min(kSize, num_elements - begin);
    const int64_t bytes = params::EncodedBytes(encoding, size);
    LODESTAR_CHECK(bytes <= static_cast<int64_t>(sizeof(encoded)))
        << params::EncodingText(encoding);
    std::copy_n(all + params::EncodedBytes(encoding, begin), bytes, encoded);
    codec::AccumulateDecoded(encoding, encoded, size, factor, values + begin,
                             kernels::Accumulate::kSet);
  }
}

// WeightedSum has one page for the weighted sum. A slot with the first contribution can become this
// page. Other contributions are added as they come, and the last one when the mean is used. The
// last bits of the mean depend on the order.
class WeightedSum final : public ContributionMean {
 public:
  WeightedSum(int64_t num_elements, PagePool& pages)
      : ContributionMean(num_elements), pages_(pages) {}

  void Add(params::Encoding encoding, const std::byte* values, const MeanShare& share) override {
    AddAdopted();
    AddTo(encoding, values, share.factor);
  }

  bool CanAdopt(params::Encoding /*encoding*/, int64_t page_elements) const override {
    return sum_ == nullptr && !adopted_.has_value() && IsWellFilled(page_elements, num_elements_);
  }

  void Adopt(std::shared_ptr<Page> values, params::Encoding encoding,
             const MeanShare& share) override {
    LODESTAR_CHECK(CanAdopt(encoding, values->size()))
        << values->size() << " for " << num_elements_;
    adopted_ = Adopted{std::move(values), encoding, share.factor};
  }

  void Finish(float rescale) override {
    AddAdopted();
    if (sum_ != nullptr) Scale(*sum_, rescale, num_elements_);
  }

  void FinishInParts(const std::optional<LastContribution>& last, float rescale,
                     UsePart use) override {
    if (sum_ == nullptr && !adopted_.has_value() && !last.has_value()) return;
    if (const Page* const whole = WithoutArithmetic();
        whole != nullptr && !last.has_value() && rescale == 1.0f) {
      return use(0, {whole->data(), static_cast<size_t>(num_elements_)});
    }
    alignas(Page::kAlignmentBytes) float space[kMeanPartElements];
    for (int64_t begin = 0; begin < num_elements_; begin += kMeanPartElements) {
      const int64_t size = std::min(kMeanPartElements, num_elements_ - begin);
      const absl::Span<float> part(space, static_cast<size_t>(size));
      FormPart(last, rescale, begin, part);
      use(begin, part);
    }
  }

  void Approach(const float* base, float share) override {
    if (sum_ == nullptr) return;
    Scale(*sum_, share, num_elements_);
    vectors::AccumulateScaled(sum_->data(), base, 1.0f - share, num_elements_,
                              kernels::Accumulate::kAdd);
  }

  const Page* mean() const override { return sum_.get(); }
  void Clear() override {
    sum_ = nullptr;
    adopted_.reset();
  }

 private:
  // The first contribution, in its encoding and not yet multiplied. While it is set, sum_ is null.
  struct Adopted {
    std::shared_ptr<Page> values;
    params::Encoding encoding;
    float factor;

    const std::byte* bytes() const { return reinterpret_cast<const std::byte*>(values->data()); }
  };

  void AddAdopted() {
    const std::optional<Adopted> adopted = std::exchange(adopted_, std::nullopt);
    if (!adopted.has_value()) return;
    sum_ = adopted->values;
    if (adopted->encoding == params::Encoding::kFp32)
      return Scale(*sum_, adopted->factor, num_elements_);
    DecodeInPlace(adopted->encoding, adopted->factor, num_elements_, sum_->data());
  }

  void AddTo(params::Encoding encoding, const std::byte* values, float factor) {
    const bool is_first = sum_ == nullptr;
    if (is_first) sum_ = pages_.Allocate(num_elements_);
    if (sum_ == nullptr) return;
    codec::AccumulateDecoded(encoding, values, num_elements_, factor, sum_->data(),
                             is_first ? kernels::Accumulate::kSet : kernels::Accumulate::kAdd);
  }

  // Returns the sum if it needs no computation, else null.
  const Page* WithoutArithmetic() const {
    if (!adopted_.has_value()) return sum_.get();
    const bool is_sum = adopted_->encoding == params::Encoding::kFp32 && adopted_->factor == 1.0f;
    return is_sum ? adopted_->values.get() : nullptr;
  }

  // Computes the elements from `begin` on, with the same bits as Add() and Finish() would give.
  void FormPart(const std::optional<LastContribution>& last, float rescale, int64_t begin,
                absl::Span<float> part) const {
    kernels::Accumulate next = kernels::Accumulate::kSet;
    const auto add = [&](params::Encoding encoding, const std::byte* values, float factor) {
      codec::AccumulateDecoded(encoding, values + params::EncodedBytes(encoding, begin),
                               static_cast<int64_t>(part.size()), factor, part.data(), next);
      next = kernels::Accumulate::kAdd;
    };
    if (sum_ != nullptr) {
      add(params::Encoding::kFp32, reinterpret_cast<const std::byte*>(sum_->data()), 1.0f);
    }
    if (adopted_.has_value()) add(adopted_->encoding, adopted_->bytes(), adopted_->factor);
    if (last.has_value()) add(last->encoding, last->values, last->share.factor);
    if (rescale != 1.0f) {
      vectors::AccumulateScaled(part.data(), part.data(), rescale,
                                static_cast<int64_t>(part.size()), kernels::Accumulate::kSet);
    }
  }

  PagePool& pages_;
  std::shared_ptr<Page> sum_;
  std::optional<Adopted> adopted_;
};

// MeanOfSenders has two pages: the weighted sum, and for each element the weight of the
// contributions that sent the element. The last bits of the mean depend on the order.
class MeanOfSenders final : public ContributionMean {
 public:
  MeanOfSenders(int64_t num_elements, PagePool& pages)
      : ContributionMean(num_elements), pages_(pages) {}

  void Add(params::Encoding encoding, const std::byte* values, const MeanShare& share) override {
    if (share.weight <= 0) return;
    if (sum_ == nullptr) {
      sum_ = pages_.Allocate(num_elements_);
      weights_ = pages_.Allocate(num_elements_);
      if (sum_ == nullptr || weights_ == nullptr) return Clear();
      std::fill_n(sum_->data(), num_elements_, 0.0f);
      std::fill_n(weights_->data(), num_elements_, 0.0f);
      first_weight_ = static_cast<double>(share.weight);
    }
    // Weights are divided by the first contribution's weight. So equal weights become 1, and a
    // single contribution equals its mean in every bit.
    const auto weight = static_cast<float>(static_cast<double>(share.weight) / first_weight_);
    codec::AccumulateDecoded(encoding, values, num_elements_, share.scale * weight, sum_->data(),
                             kernels::Accumulate::kAdd);
    codec::AddWhereKept(encoding, values, num_elements_, weight, weights_->data());
  }

  bool CanAdopt(params::Encoding, int64_t) const override { return false; }
  void Adopt(std::shared_ptr<Page> values, params::Encoding encoding,
             const MeanShare& share) override {
    Add(encoding, reinterpret_cast<const std::byte*>(values->data()), share);
  }

  void Finish(float rescale) override {
    if (sum_ == nullptr) return;
    if (weights_ != nullptr) {
      DivideWherePositive(sum_->data(), weights_->data(), num_elements_);
      weights_ = nullptr;
    }
    Scale(*sum_, rescale, num_elements_);
  }

  // Does nothing, because only means of weights need Approach(). Weights do not travel as top-k.
  void Approach(const float*, float) override {}

  const Page* mean() const override { return sum_.get(); }
  void Clear() override {
    sum_ = nullptr;
    weights_ = nullptr;
  }

 private:
  PagePool& pages_;
  std::shared_ptr<Page> sum_;
  std::shared_ptr<Page> weights_;  // per element: sum of weights; null: sum_ is the mean
  double first_weight_ = 1.0;
};

// DirectionMean merges contributions as Decoupled DiLoCo (arXiv:2604.21428) does. Within each part
// of the vector, for contributions v with weights w, the result is:
//
//   (sum of w |v| / sum of w) * phi(sum of w phi(v) / sum of w),  phi(x) = x / |x|, phi(0) = 0
//
// So its length is the mean length of the contributions. The plain mean of M vectors at right
// angles is shorter by the square root of M. With this mean, steps stay as long when workers join
// or leave. If the directions cancel, the result is the plain mean.
//
// It takes two pages: one for the weighted sum, and one for the sum of the directions. If there is
// no memory for the second page, the result is the plain mean. The last bits of the mean depend on
// the order. If there is only one contribution, it equals its mean in every bit.
class DirectionMean final : public ContributionMean {
 public:
  DirectionMean(std::vector<params::ElementRange> parts, int64_t num_elements, PagePool& pages)
      : ContributionMean(num_elements), parts_(std::move(parts)), pages_(pages) {}

  void Add(params::Encoding encoding, const std::byte* values, const MeanShare& share) override {
    if (share.weight <= 0) return;
    if (encoding == params::Encoding::kFp32) {
      return AddElements(reinterpret_cast<const float*>(values), share);
    }
    const std::shared_ptr<Page> decoded = pages_.Allocate(num_elements_);
    if (decoded == nullptr) return;
    codec::AccumulateDecoded(encoding, values, num_elements_, 1.0f, decoded->data(),
                             kernels::Accumulate::kSet);
    AddElements(decoded->data(), share);
  }

  bool CanAdopt(params::Encoding encoding, int64_t page_elements) const override {
    return encoding == params::Encoding::kFp32 && sum_ == nullptr &&
           IsWellFilled(page_elements, num_elements_);
  }

  void Adopt(std::shared_ptr<Page> values, params::Encoding encoding,
             const MeanShare& share) override {
    LODESTAR_CHECK(CanAdopt(encoding, values->size()))
        << values->size() << " for " << num_elements_;
    if (share.weight <= 0) return;
    BeginDirections(share.weight);
    AddDirections(values->data(), share);
    sum_ = std::move(values);
    Scale(*sum_, share.factor, num_elements_);
  }

  void Finish(float rescale) override {
    if (sum_ == nullptr) return;
    Scale(*sum_, rescale, num_elements_);
    if (directions_ == nullptr) return;
    if (num_added_ > 1) {
      for (size_t i = 0; i < parts_.size(); ++i) TakeDirection(i, rescale);
    }
    directions_ = nullptr;
  }

  // Does nothing, because only means of weights need Approach(). Weights are never merged by
  // direction.
  void Approach(const float*, float) override {}

  const Page* mean() const override { return sum_.get(); }
  void Clear() override {
    sum_ = nullptr;
    directions_ = nullptr;
  }

 private:
  // If the sum of unit vectors is shorter than this, the vectors cancel and the sum is rounding
  // error.
  static constexpr double kLeastDirection = 1e-3;
  // A vector that is shorter than this counts as zero, because its inverse length would not be a
  // finite fp32.
  static constexpr double kLeastLength = 1e-30;

  void BeginDirections(int64_t weight) {
    directions_ = pages_.Allocate(num_elements_);
    if (directions_ == nullptr) return;
    std::fill_n(directions_->data(), num_elements_, 0.0f);
    lengths_.assign(parts_.size(), 0.0);
    num_added_ = 0;
    unit_weight_ = static_cast<double>(weight);
    total_weight_ = 0.0;
  }

  void AddElements(const float* elements, const MeanShare& share) {
    const bool is_first = sum_ == nullptr;
    if (is_first) {
      sum_ = pages_.Allocate(num_elements_);
      if (sum_ == nullptr) return;
      BeginDirections(share.weight);
    }
    AddDirections(elements, share);
    vectors::AccumulateScaled(sum_->data(), elements, share.factor, num_elements_,
                              is_first ? kernels::Accumulate::kSet : kernels::Accumulate::kAdd);
  }

  void AddDirections(const float* elements, const MeanShare& share) {
    if (directions_ == nullptr) return;
    const double weight = static_cast<double>(share.weight) / unit_weight_;
    ++num_added_;
    total_weight_ += weight;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const params::ElementRange& part = parts_[i];
      const double length = std::sqrt(vectors::SumOfSquares(elements + part.begin, part.size()));
      lengths_[i] += std::abs(double{share.factor}) * length;
      if (length < kLeastLength || length * std::abs(double{share.scale}) < kLeastLength) continue;
      vectors::AccumulateScaled(directions_->data() + part.begin, elements + part.begin,
                                static_cast<float>(std::copysign(weight / length, share.scale)),
                                part.size(), kernels::Accumulate::kAdd);
    }
  }

  void TakeDirection(size_t index, float rescale) {
    const params::ElementRange& part = parts_[index];
    const float* const direction = directions_->data() + part.begin;
    const double length = std::sqrt(vectors::SumOfSquares(direction, part.size()));
    if (length <= kLeastDirection * total_weight_) return;
    vectors::AccumulateScaled(sum_->data() + part.begin, direction,
                              static_cast<float>(lengths_[index] * double{rescale} / length),
                              part.size(), kernels::Accumulate::kSet);
  }

  const std::vector<params::ElementRange> parts_;
  PagePool& pages_;
  std::shared_ptr<Page> sum_;
  std::shared_ptr<Page> directions_;  // null: sum_ is the mean
  std::vector<double> lengths_;       // for each part: the sum of |factor| times length
  int num_added_ = 0;
  double unit_weight_ = 1.0;   // weight that counts as 1: the first contribution's
  double total_weight_ = 0.0;  // sum of the weights in the mean
};

// TrimmedContributions keeps a page for each contribution until the round is over. Any order of the
// contributions gives the same bits.
class TrimmedContributions final : public ContributionMean {
 public:
  TrimmedContributions(const job::RobustMean& kind, int64_t num_elements, PagePool& pages)
      : ContributionMean(num_elements), kind_(kind), pages_(pages) {}

  void Add(params::Encoding encoding, const std::byte* values, const MeanShare& share) override {
    if (!IsWanted(share)) return;
    std::shared_ptr<Page> page = pages_.Allocate(num_elements_);
    if (page == nullptr) return;
    codec::AccumulateDecoded(encoding, values, num_elements_, share.scale, page->data(),
                             kernels::Accumulate::kSet);
    Keep(std::move(page), share);
  }

  bool CanAdopt(params::Encoding encoding, int64_t page_elements) const override {
    return encoding == params::Encoding::kFp32 && IsWellFilled(page_elements, num_elements_);
  }

  void Adopt(std::shared_ptr<Page> values, params::Encoding encoding,
             const MeanShare& share) override {
    LODESTAR_CHECK(CanAdopt(encoding, values->size())) << values->size();
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
    vectors::TrimmedMean(mean_->data(), values, weights,
                         kind_.TrimOf(static_cast<int>(values.size())), num_elements_);
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

  // The coordinator admits no more than kMaxRobustContributions to a round.
  bool IsWanted(const MeanShare& share) const {
    return share.weight > 0 && contributions_.size() < job::kMaxRobustContributions;
  }

  void Keep(std::shared_ptr<Page> page, const MeanShare& share) {
    const auto position =
        std::find_if(contributions_.begin(), contributions_.end(),
                     [&share](const Contribution& other) { return share.order < other.order; });
    contributions_.insert(position, {share.order, share.weight, std::move(page)});
  }

  const job::RobustMean kind_;
  PagePool& pages_;
  std::vector<Contribution> contributions_;  // ascending by `order`
  std::shared_ptr<Page> mean_;
};

}  // namespace

void ContributionMean::FinishInParts(const std::optional<LastContribution>& last, float rescale,
                                     UsePart use) {
  if (last.has_value()) Add(last->encoding, last->values, last->share);
  Finish(rescale);
  if (mean() != nullptr) use(0, {mean()->data(), static_cast<size_t>(num_elements_)});
}

std::unique_ptr<ContributionMean> MakeContributionMean(const MeanKind& kind, int64_t num_elements,
                                                       PagePool& pages) {
  if (kind.robust.is_robust()) {
    return std::make_unique<TrimmedContributions>(kind.robust, num_elements, pages);
  }
  if (kind.divides_by_senders) return std::make_unique<MeanOfSenders>(num_elements, pages);
  if (!kind.directions.empty()) {
    return std::make_unique<DirectionMean>(kind.directions, num_elements, pages);
  }
  return std::make_unique<WeightedSum>(num_elements, pages);
}

}  // namespace lodestar::shard
