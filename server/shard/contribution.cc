// SPDX-License-Identifier: Apache-2.0

#include "server/shard/contribution.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/runtime/check.h"
#include "common/runtime/status_macros.h"
#include "kernels/codec/encoded_vectors.h"
#include "server/optimizer/optimizer_factory.h"

namespace lodestar::shard {
namespace {

// Returns a limit for the absolute values of elements. If an element is within it, the element
// times the key's scale is within kMaxContribution.
float LimitOf(const ContributionKey& key) {
  constexpr float kLargest = std::numeric_limits<float>::infinity();
  const float scale = std::abs(key.scale);
  return scale == 0.0f ? kLargest : std::min(messages::kMaxContribution / scale, kLargest);
}

// Returns the error for the first bad element. `bad` is its position, or the number of elements if
// none is bad: then the result is OK.
absl::Status CheckFound(int64_t bad, const ContributionKey& key, const params::Layout& layout,
                        const params::Bucket& bucket) {
  if (bad == bucket.range.size()) return absl::OkStatus();
  const int64_t element = bucket.range.begin + bad;
  const params::TensorSpec& tensor = layout.TensorAt(element);
  const std::string text =
      absl::StrCat("worker ", key.worker.value(), ", tensor '", tensor.name, "', element ",
                   element - tensor.offset, " (bucket ", bucket.index, ", element ", bad, ")",
                   key.scale == 1.0f ? "" : absl::StrCat(", times the scale ", key.scale),
                   ": the number is NaN, Inf, or not below ", messages::kMaxContribution);
  if (key.kind == messages::ContributionKind::kInitialWeights) {
    return absl::InvalidArgumentError(absl::StrCat(text, "; the first weights are refused"));
  }
  return absl::AbortedError(
      absl::StrCat(text, "; the contribution to round ", key.round.value(), " is not counted"));
}

// Largest number of updates that the state of an optimizer may begin with.
constexpr Version kMaxFirstVersion(int64_t{1} << 40);

// Checks that the job's optimizer has the vector that the key names. Errors: InvalidArgument.
absl::Status CheckFirstState(const ContributionKey& key, const job::JobSpec& job) {
  const int of_optimizer = optimizer::MakeServerOptimizer(job)->num_state_vectors();
  if (key.kind == messages::ContributionKind::kInitialWeights &&
      key.state_vector <= static_cast<uint32_t>(of_optimizer)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "worker ", key.worker.value(), " sent ", messages::ContributionKindName(key.kind),
      " with state_vector ", key.state_vector, ". Only first weights have a state_vector, and the ",
      "optimizer of this job has ", of_optimizer, " of them"));
}

}  // namespace

absl::Status CheckForm(const ContributionKey& key, const params::Bucket& bucket,
                       const job::JobSpec& job, bool is_averaged, bool awaits_first_weights) {
  const bool is_first = key.kind == messages::ContributionKind::kInitialWeights;
  const messages::ContributionKind wanted =
      is_first && awaits_first_weights ? key.kind : messages::RoundContributionKind(job);
  if (key.kind != wanted) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker ", key.worker.value(), " sent ", messages::ContributionKindName(key.kind),
        ", but this job takes ", messages::ContributionKindName(wanted),
        "; send the kind of contribution that the job's --mode wants"));
  }
  const params::Encoding encoding =
      is_first || is_averaged ? params::Encoding::kFp32 : job.push_encoding;
  if (key.encoding != encoding) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker ", key.worker.value(), " sent ", messages::ContributionKindName(key.kind), " in ",
        params::EncodingText(key.encoding), ", but this job takes ", params::EncodingText(encoding),
        is_averaged
            ? absl::StrCat(" for bucket ", bucket.index, ", which is averaged and not encoded")
            : "; use the push_encoding in the reply to the registration"));
  }
  if (key.state_vector != 0) RETURN_IF_ERROR(CheckFirstState(key, job));
  if (is_first && key.base_version > kMaxFirstVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", key.worker.value(), " sent first weights with base_version ",
                     key.base_version.value(), "; it must be at most ", kMaxFirstVersion.value()));
  }
  if (key.learning_rate.has_value() && !job::TakesProgramRates(job)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker ", key.worker.value(), " sent the learning rate ", *key.learning_rate,
        ", but this job uses its own schedule. Send no rate, or start the servers with "
        "--lr_schedule=program"));
  }
  // If contributions are deferred, a worker that has just begun skips its first one, because it has
  // none yet.
  const bool may_be_skipped = key.kind == messages::ContributionKind::kGradient ||
                              (!is_first && job::DefersContributions(job));
  if (key.is_skipped() && !may_be_skipped) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker ", key.worker.value(), " sent ", messages::ContributionKindName(key.kind),
        " of a skipped step. Only a step with a gradient can be skipped, or the first contribution "
        "of an incarnation with --fragments, --overlap_steps, --overlap_rounds or "
        "--outer_optimizer=easgd"));
  }
  if ((key.kind == messages::ContributionKind::kWeights || is_averaged) && key.scale != 1.0f) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker ", key.worker.value(), ", bucket ", bucket.index, ": scale is ", key.scale, "; ",
        is_averaged ? "averaged values" : "weights", " must have scale 1"));
  }
  if (std::abs(key.scale) <= messages::kMaxContributionScale) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "worker ", key.worker.value(), ", bucket ", bucket.index, ": scale is ", key.scale,
      "; it must be a number of at most ", messages::kMaxContributionScale));
}

absl::Status CheckBytes(const ContributionKey& key, const params::Bucket& bucket,
                        const std::byte* elements) {
  const int64_t bad = codec::FirstMalformed(key.encoding, elements, bucket.range.size());
  if (bad == bucket.range.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("worker ", key.worker.value(), ", bucket ", bucket.index, ", the ",
                   params::BlockElements(key.encoding), " elements that begin at element ", bad,
                   ": their positions in ", params::EncodingText(key.encoding),
                   " do not ascend. The contribution to round ", key.round.value(),
                   " is not counted. Use the encoder of this release"));
}

NumbersCheck::NumbersCheck(const ContributionKey& key, int64_t num_elements, bool measures_norm)
    : encoding_(key.encoding),
      scale_(std::abs(key.scale)),
      limit_(LimitOf(key)),
      num_elements_(num_elements),
      measures_norm_(measures_norm),
      first_bad_(num_elements) {}

void NumbersCheck::Look(const std::byte* elements, int64_t num_bytes,
                        absl::Span<const std::byte> last) {
  const int64_t last_begin = num_bytes - static_cast<int64_t>(last.size());
  while (num_seen_ < num_elements_ && first_bad_ == num_elements_) {
    const int64_t size = std::min(params::kWholeBlocks, num_elements_ - num_seen_);
    const int64_t begin = params::EncodedBytes(encoding_, num_seen_);
    if (params::EncodedBytes(encoding_, num_seen_ + size) > num_bytes) return;
    // Only whole blocks are read from `last`, because `last` may not be aligned. The loops over
    // whole blocks need no alignment.
    const bool is_in_last = begin >= last_begin && size == params::kWholeBlocks;
    const std::byte* const part =
        is_in_last ? last.data() + (begin - last_begin) : elements + begin;
    double square_sum = 0.0;
    const int64_t bad = measures_norm_
                            ? codec::FirstNotBelow(encoding_, part, limit_, size, &square_sum)
                            : codec::FirstNotBelow(encoding_, part, limit_, size);
    if (bad < size) first_bad_ = num_seen_ + bad;
    square_sum_ += square_sum;
    num_seen_ += size;
  }
}

absl::Status NumbersCheck::Result(const ContributionKey& key, const params::Layout& layout,
                                  const params::Bucket& bucket) const {
  LODESTAR_CHECK(num_seen_ == num_elements_ || first_bad_ < num_elements_)
      << num_seen_ << " of " << num_elements_;
  return CheckFound(first_bad_, key, layout, bucket);
}

double NumbersCheck::norm() const { return std::sqrt(square_sum_) * double{scale_}; }

}  // namespace lodestar::shard
