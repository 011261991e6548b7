#include "server/shard/contribution.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/codec/encoded_vectors.h"

namespace lodestar {

absl::Status CheckForm(const ContributionKey& key, const Bucket& bucket, const JobSpec& job,
                       bool awaits_first_weights) {
  const bool is_first = key.kind == ContributionKind::kInitialWeights;
  const ContributionKind wanted =
      is_first && awaits_first_weights ? key.kind : RoundContributionKind(job);
  if (key.kind != wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", key.worker.value(), " sent ", ContributionKindName(key.kind),
                     ", this job takes ", ContributionKindName(wanted)));
  }
  const Encoding encoding = is_first ? Encoding::kFp32 : job.push_encoding;
  if (key.encoding != encoding) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", key.worker.value(), " sent ", ContributionKindName(key.kind),
                     " in ", EncodingName(key.encoding), ", this job takes ",
                     EncodingName(encoding), "; use push_encoding of the registration"));
  }
  if (std::abs(key.scale) <= kMaxContributionScale) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("worker ", key.worker.value(), ", bucket ", bucket.index, ": scale is ",
                   key.scale, ", wanted is a number of at most ", kMaxContributionScale));
}

absl::Status CheckNumbers(const ContributionKey& key, const Bucket& bucket,
                          const std::byte* elements) {
  constexpr float kLargest = std::numeric_limits<float>::infinity();
  const float scale = std::abs(key.scale);
  const float limit = scale == 0.0f ? kLargest : std::min(kMaxContribution / scale, kLargest);
  const int64_t bad = FirstNotBelow(key.encoding, elements, limit, bucket.range.size());
  if (bad == bucket.range.size()) return absl::OkStatus();
  const std::string text =
      absl::StrCat("worker ", key.worker.value(), ", bucket ", bucket.index, ", element ", bad,
                   key.scale == 1.0f ? "" : absl::StrCat(", times the scale ", key.scale),
                   ": NaN, Inf or not below ", kMaxContribution);
  if (key.kind == ContributionKind::kInitialWeights) {
    return absl::InvalidArgumentError(absl::StrCat(text, "; the first weights are not taken"));
  }
  return absl::AbortedError(absl::StrCat(text, "; the contribution to round ", key.round.value(),
                                         " is not counted: register again"));
}

}  // namespace lodestar
