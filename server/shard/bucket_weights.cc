// SPDX-License-Identifier: Apache-2.0

#include "server/shard/bucket_weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/params/shard_plan.h"
#include "common/runtime/check.h"
#include "common/runtime/status_macros.h"
#include "kernels/codec/encoded_vectors.h"
#include "kernels/vectors/reduce.h"

namespace lodestar::shard {
namespace {

// Returns the parts of `range` that belong to tensors with decay, relative to the start of `range`.
// Adjacent parts are joined.
std::vector<params::ElementRange> DecayRanges(const params::Layout& layout,
                                              params::ElementRange range) {
  std::vector<params::ElementRange> ranges;
  for (const params::TensorSpec& tensor : layout.tensors()) {
    const int64_t begin = std::max(tensor.offset, range.begin);
    const int64_t end = std::min(tensor.offset + tensor.num_elements(), range.end);
    if (!tensor.decay || begin >= end) continue;
    if (!ranges.empty() && ranges.back().end == begin - range.begin) {
      ranges.back().end = end - range.begin;
    } else {
      ranges.push_back({begin - range.begin, end - range.begin});
    }
  }
  return ranges;
}

MeanKind MeanOf(const job::JobSpec& job, const params::Layout& layout, params::ElementRange range,
                bool is_averaged) {
  MeanKind kind = {.robust = job.robust_mean};
  // Averaged values are neither divided by senders nor merged by direction.
  if (is_averaged) return kind;
  kind.divides_by_senders = job::DividesBySenders(job);
  if (job::AveragesDirections(job)) kind.directions = layout.TensorParts(range);
  return kind;
}

// Returns the parts of `ranges` that lie within `within`, relative to the start of `within`.
std::vector<params::ElementRange> RangesWithin(absl::Span<const params::ElementRange> ranges,
                                               params::ElementRange within) {
  std::vector<params::ElementRange> cut;
  for (const params::ElementRange& range : ranges) {
    const int64_t begin = std::max(range.begin, within.begin);
    const int64_t end = std::min(range.end, within.end);
    if (begin < end) cut.push_back({begin - within.begin, end - within.begin});
  }
  return cut;
}

void CopyPage(const Page& from, Page& to, int64_t elements) {
  std::memcpy(to.data(), from.data(), elements * sizeof(float));
}

}  // namespace

BucketWeights::BucketWeights(const Part& part, const job::JobSpec& job,
                             const params::Layout& layout, const optimizer::Optimizer& optimizer,
                             PagePool& pages)
    : range_(part.range),
      is_averaged_(part.is_averaged),
      layout_(layout),
      optimizer_(optimizer),
      pages_(pages),
      num_state_vectors_(optimizer.num_state_vectors()),
      decay_(DecayRanges(layout, range_)),
      mean_(MakeContributionMean(MeanOf(job, layout, range_, is_averaged_), range_.size(), pages)) {
  if (is_averaged_) return;
  if (job.momentum_correction == job::MomentumCorrectionKind::kHeloco) {
    correction_.emplace(Correction{optimizer::MomentumCorrection({.momentum = job.outer_momentum}),
                                   layout.TensorParts(range_)});
  }
  if (job.pull_encoding == params::Encoding::kFp32) return;
  shadow_.emplace(
      BucketShadow::Config{
          .encoding = job.pull_encoding, .error_feedback = job.error_feedback, .seed = job.seed},
      range_, pages);
}

absl::Status BucketWeights::OutOfMemory() const {
  return absl::ResourceExhaustedError(
      absl::StrCat("out of memory for the weights and optimizer state of elements ", range_.begin,
                   " to ", range_.end));
}

absl::Status BucketWeights::AllocateAll() {
  // The new weights replace weights that a client supplied before. Readers of the earlier weights
  // keep their page.
  if (weights_ == nullptr || weights_->is_lent()) weights_ = pages_.Allocate(num_elements());
  if (weights_ == nullptr) return OutOfMemory();
  state_.clear();
  for (int i = 0; i < num_state_vectors_; ++i) {
    std::shared_ptr<Page> page = pages_.Allocate(num_elements());
    if (page == nullptr) return OutOfMemory();
    state_.push_back(std::move(page));
  }
  return shadow_.has_value() && !shadow_->Allocate() ? OutOfMemory() : absl::OkStatus();
}

absl::StatusOr<absl::Span<float>> BucketWeights::InitialWeights() {
  RETURN_IF_ERROR(AllocateAll());
  for (int i = 0; i < num_state_vectors_; ++i) {
    if (const auto given = initial_state_.find(i + 1); given != initial_state_.end()) {
      CopyPage(*given->second, *state_[i], num_elements());
    } else {
      std::memset(state_[i]->data(), 0, num_elements() * sizeof(float));
    }
  }
  initial_state_.clear();
  return weights_->mutable_span();
}

absl::StatusOr<absl::Span<float>> BucketWeights::InitialState(uint32_t state_vector) {
  std::shared_ptr<Page>& page = initial_state_[state_vector];
  page = pages_.Allocate(num_elements());
  if (page == nullptr) return OutOfMemory();
  return page->mutable_span();
}

absl::Status BucketWeights::Restore(const BucketState& state) {
  if (state.range != range_ || state.weights == nullptr ||
      static_cast<int>(state.optimizer_state.size()) != num_state_vectors_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the checkpoint does not fit the job: the restored state has elements ", state.range.begin,
        " to ", state.range.end, " with ", state.optimizer_state.size(),
        " state vectors, but this bucket has elements ", range_.begin, " to ", range_.end,
        ", and its optimizer's number of state vectors is ", num_state_vectors_));
  }
  RETURN_IF_ERROR(AllocateAll());
  CopyPage(*state.weights, *weights_, num_elements());
  for (size_t i = 0; i < state_.size(); ++i) {
    CopyPage(*state.optimizer_state[i], *state_[i], num_elements());
  }
  return absl::OkStatus();
}

absl::Status BucketWeights::Replace(absl::Span<const float> weights) {
  if (!vectors::AllFinite(weights.data(), num_elements())) {
    return absl::InvalidArgumentError(absl::StrCat("the new weights of elements ", range_.begin,
                                                   " to ", range_.end, " have NaN or Inf"));
  }
  std::shared_ptr<Page> out = weights_->is_lent() ? pages_.Allocate(num_elements()) : weights_;
  if (out == nullptr) return OutOfMemory();
  std::copy_n(weights.data(), num_elements(), out->data());
  weights_ = std::move(out);
  return absl::OkStatus();
}

std::vector<double> BucketWeights::SegmentSquareSums() const {
  const Page* const mean = is_averaged_ ? nullptr : mean_->mean();
  std::vector<double> sums;
  for (const params::ElementRange& segment : params::SegmentsOf(layout_, range_)) {
    sums.push_back(
        mean == nullptr
            ? 0.0
            : vectors::SumOfSquares(mean->data() + (segment.begin - range_.begin), segment.size()));
  }
  return sums;
}

void BucketWeights::Add(messages::ContributionKind kind, params::Encoding encoding,
                        const std::byte* values, const MeanShare& share) {
  if (kind != messages::ContributionKind::kWeights || share.scale == 1.0f) {
    return mean_->Add(encoding, values, share);
  }
  const std::shared_ptr<Page> nearer = pages_.Allocate(num_elements());
  if (nearer == nullptr) return;
  codec::AccumulateDecoded(encoding, values, num_elements(), share.scale, nearer->data(),
                           kernels::Accumulate::kSet);
  vectors::AccumulateScaled(nearer->data(), data(), 1.0f - share.scale, num_elements(),
                            kernels::Accumulate::kAdd);
  mean_->Add(params::Encoding::kFp32, reinterpret_cast<const std::byte*>(nearer->data()),
             {.weight = share.weight, .factor = share.factor, .order = share.order});
}

void BucketWeights::FinishMean(float rescale, float clip) {
  mean_->Finish(rescale);
  if (clip != 1.0f) mean_->Approach(data(), clip);
}

bool BucketWeights::ApplyMean(const optimizer::OptimizerCall& call, bool has_update) {
  const Page* const mean = mean_->mean();
  const bool is_finite = !has_update || Apply(call, mean == nullptr ? nullptr : mean->data());
  mean_->Clear();
  return is_finite;
}

bool BucketWeights::FinishAndApply(const optimizer::OptimizerCall& call,
                                   const std::optional<LastContribution>& last, float rescale) {
  std::shared_ptr<Page> out;
  bool is_finite = true;
  mean_->FinishInParts(last, rescale, [&](int64_t begin, absl::Span<const float> part) {
    // BeginUpdate() allocates a page. It is called with the first part of the mean, because the
    // mean may have freed a page by then.
    if (begin == 0) out = BeginUpdate(call);
    if (out != nullptr) is_finite = UpdatePart(call, begin, part, *out) && is_finite;
  });
  EndUpdate(call, std::move(out));
  mean_->Clear();
  return is_finite;
}

bool BucketWeights::ApplyAlone(const optimizer::OptimizerCall& call,
                               messages::ContributionKind kind, params::Encoding encoding,
                               const std::byte* contribution) {
  if (kind == messages::ContributionKind::kWeights) {
    LODESTAR_CHECK(encoding == params::Encoding::kFp32)
        << "weights in " << params::EncodingText(encoding);
    const std::shared_ptr<Page> change = pages_.Allocate(num_elements());
    if (change == nullptr) return Apply(call, nullptr);
    vectors::Subtract(change->data(), data(), reinterpret_cast<const float*>(contribution),
                      num_elements());
    return ApplyAlone(call, change->data());
  }
  if (encoding == params::Encoding::kFp32) {
    return ApplyAlone(call, reinterpret_cast<const float*>(contribution));
  }
  if (!correction_.has_value()) {
    return FinishAndApply(call, LastContribution{encoding, contribution, MeanShare()},
                          /*rescale=*/1.0f);
  }
  mean_->Add(encoding, contribution, MeanShare());
  mean_->Finish(/*rescale=*/1.0f);
  const Page* const decoded = mean_->mean();
  const bool is_finite =
      decoded == nullptr ? Apply(call, nullptr) : ApplyAlone(call, decoded->data());
  mean_->Clear();
  return is_finite;
}

bool BucketWeights::ApplyAlone(const optimizer::OptimizerCall& call, const float* gradient) {
  if (!correction_.has_value()) return Apply(call, gradient);
  const std::shared_ptr<Page> corrected = Corrected(call, gradient);
  return Apply(call, corrected == nullptr ? gradient : corrected->data());
}

std::shared_ptr<Page> BucketWeights::Corrected(const optimizer::OptimizerCall& call,
                                               const float* gradient) {
  const std::vector<params::ElementRange>& parts = correction_->parts;
  const float* const momentum = state_[0]->data();
  // Scale of the whole contribution. If the step has several parts, call.gradient_scale includes
  // the factor of this part.
  const float scale = call.gradient_scale / call.part.factor;
  const std::vector<optimizer::MomentumCorrection::Factors> factors =
      correction_->rule.FactorsOf(parts, gradient, scale, momentum);
  std::shared_ptr<Page> corrected;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (factors[i] == optimizer::MomentumCorrection::Factors()) continue;
    if (corrected == nullptr) {
      corrected = pages_.Allocate(num_elements());
      if (corrected == nullptr) return nullptr;
      std::memcpy(corrected->data(), gradient, num_elements() * sizeof(float));
    }
    float* const part = corrected->data() + parts[i].begin;
    vectors::AccumulateScaled(part, part, static_cast<float>(factors[i].keep), parts[i].size(),
                              kernels::Accumulate::kSet);
    vectors::AccumulateScaled(part, momentum + parts[i].begin,
                              static_cast<float>(factors[i].add / double{scale}), parts[i].size(),
                              kernels::Accumulate::kAdd);
  }
  return corrected;
}

bool BucketWeights::Apply(const optimizer::OptimizerCall& call, const float* gradient) {
  std::shared_ptr<Page> out;
  if (gradient != nullptr) out = BeginUpdate(call);
  const bool is_finite =
      out == nullptr || UpdatePart(call, 0, {gradient, static_cast<size_t>(num_elements())}, *out);
  EndUpdate(call, std::move(out));
  return is_finite;
}

std::shared_ptr<Page> BucketWeights::BeginUpdate(const optimizer::OptimizerCall& call) {
  LODESTAR_CHECK(has_weights()) << "there are no weights in the bucket that begins at element "
                                << range_.begin;
  std::shared_ptr<Page> out = weights_->is_lent() ? pages_.Allocate(num_elements()) : weights_;
  if (out == nullptr) return nullptr;
  for (std::shared_ptr<Page>& page : state_) {
    if (!page->is_lent()) continue;
    std::shared_ptr<Page> copy = pages_.Allocate(num_elements());
    if (copy == nullptr) return nullptr;
    CopyPage(*page, *copy, num_elements());
    page = std::move(copy);
  }
  if (shadow_.has_value()) shadow_->BeginAdvance(Version(call.step));
  return out;
}

bool BucketWeights::UpdatePart(const optimizer::OptimizerCall& call, int64_t begin,
                               absl::Span<const float> gradient, Page& out) {
  bool is_finite = true;
  // With a shadow, the gradient is cut into pieces, so that the new weights are still in the cache
  // when AdvancePart() encodes them. Without a shadow one piece is fastest.
  const size_t piece_elements = shadow_.has_value() ? kMeanPartElements : gradient.size();
  for (size_t offset = 0; offset < gradient.size(); offset += piece_elements) {
    const absl::Span<const float> piece = gradient.subspan(offset, piece_elements);
    const int64_t first = begin + static_cast<int64_t>(offset);
    const absl::Span<float> weights = out.mutable_span().subspan(first, piece.size());
    optimizer::OptimizerVectors vectors = {
        .gradient = piece,
        .weights_in = weights_->span().subspan(first, piece.size()),
        .weights_out = weights,
        .state = {},
    };
    for (int i = 0; i < num_state_vectors_; ++i) {
      vectors.state[i] = state_[i]->mutable_span().subspan(first, piece.size());
    }
    const params::ElementRange range = {first, first + static_cast<int64_t>(piece.size())};
    if (!optimizer_.Apply(call, vectors, RangesWithin(decay_, range))) {
      is_finite = false;
    } else if (shadow_.has_value()) {
      shadow_->AdvancePart(first, weights);
    }
  }
  return is_finite;
}

void BucketWeights::EndUpdate(const optimizer::OptimizerCall& call, std::shared_ptr<Page> out) {
  const bool has_begun = out != nullptr;
  if (has_begun) weights_ = std::move(out);
  if (!shadow_.has_value()) return;
  if (!has_begun) {
    shadow_->BeginAdvance(Version(call.step));
    shadow_->AdvancePart(0, weights_->span());
  }
  shadow_->EndAdvance();
}

bool BucketWeights::AreFinite() const {
  return vectors::AllFinite(weights_->data(), num_elements()) &&
         std::all_of(state_.begin(), state_.end(), [this](const std::shared_ptr<Page>& page) {
           return vectors::AllFinite(page->data(), num_elements());
         });
}

void BucketWeights::ResetShadow(Version version) {
  if (shadow_.has_value()) shadow_->Reset(*weights_, version);
}

void BucketWeights::RestoreShadow(const std::byte* elements, Version version) {
  if (shadow_.has_value()) shadow_->Restore(elements, *weights_, version);
}

std::shared_ptr<const Page> BucketWeights::LendShadow() const {
  return shadow_.has_value() ? shadow_->Lend(std::nullopt).page : nullptr;
}

PublishedBucket BucketWeights::Lend(const ReadView& view, Version version) const {
  if (view.state_vector > 0) {
    return {Page::Lend(state_[view.state_vector - 1]), num_elements(), version};
  }
  if (view.shadow && shadow_.has_value()) return shadow_->Lend(view.held);
  return {LendWeights(), num_elements(), version};
}

void BucketWeights::LendTo(BucketState& state) const {
  state.range = range_;
  state.weights = Page::Lend(weights_);
  state.optimizer_state.clear();
  for (const std::shared_ptr<Page>& page : state_) {
    state.optimizer_state.push_back(Page::Lend(page));
  }
}

}  // namespace lodestar::shard
