// SPDX-License-Identifier: Apache-2.0

// A contribution is what a worker pushes, as the shard sees it. This file also says which
// contributions may be counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/job/job_spec.h"
#include "common/messages/contribution.h"  // ContributionKind
#include "common/params/bucket_plan.h"
#include "common/params/encoding.h"
#include "common/params/layout.h"
#include "common/runtime/ids.h"

namespace lodestar::shard {

// Names one contribution of one worker to one round. Each bucket counts a key only once.
struct ContributionKey {
  WorkerId worker;
  Incarnation incarnation;
  Round round;           // round of the grant
  Version base_version;  // version that the contribution was computed on
  messages::ContributionKind kind = messages::ContributionKind::kGradient;
  float scale = 1.0f;  // factor for the elements, for clients that clip
  params::Encoding encoding = params::Encoding::kFp32;
  // Number of samples that the contribution was computed on. 0 means all samples of the grant.
  // kSkippedSamples means that the contribution was skipped.
  int64_t num_samples = 0;

  // Rate of the program's optimizer for the step, if the job takes the rates of programs.
  std::optional<double> learning_rate = {};
  // Weight in the mean that the program has given, in place of num_samples.
  std::optional<int64_t> weight = {};
  // Only for kInitialWeights. 0 means that the elements are weights. n means that they are the n-th
  // vector of the optimizer's state.
  uint32_t state_vector = 0;

  bool is_skipped() const { return num_samples == messages::kSkippedSamples; }
  // Returns the size of one bucket in the key's encoding.
  int64_t BytesOf(const params::Bucket& of) const {
    return is_skipped() ? 0 : params::EncodedBytes(encoding, of.range.size());
  }
};

enum class PushOutcome : uint8_t {
  kCounted,
  kDuplicate,  // it was counted before
  kLate,       // the round was committed without it, so it is dropped
};

// Checks that the job accepts contributions of this kind, encoding and scale. `is_averaged` says
// whether the bucket holds averaged tensors. Errors: InvalidArgument.
absl::Status CheckForm(const ContributionKey& key, const params::Bucket& bucket,
                       const job::JobSpec& job, bool is_averaged, bool awaits_first_weights);

// Checks that an encoder can have made these bytes. Errors: InvalidArgument, naming worker, bucket
// and block.
absl::Status CheckBytes(const ContributionKey& key, const params::Bucket& bucket,
                        const std::byte* elements);

// NumbersCheck checks that the numbers of one bucket of a contribution are finite and not too
// large. The numbers may be given piece by piece, as they arrive, or all at once. It looks at each
// number only once, while the number is still in the cache. It is not thread-safe.
class NumbersCheck {
 public:
  // `measures_norm` says whether norm() will be called. num_elements is the size of the whole
  // bucket.
  NumbersCheck(const ContributionKey& key, int64_t num_elements, bool measures_norm);

  // Checks the elements that have arrived since the last call. Leaves less than kWholeBlocks
  // elements for the next call, unless they are the last ones of the bucket.
  // - `elements` has the encoding of the key, and passes CheckBytes().
  // - `num_bytes` is the number of bytes of `elements` that have arrived. It never decreases.
  // - `last` has copies of the last of these bytes, without alignment. It is given if the copies
  //   are in the cache and the bytes are not.
  void Look(const std::byte* elements, int64_t num_bytes, absl::Span<const std::byte> last = {});

  // Checks that the elements, times the scale of the key, are finite and within kMaxContribution.
  // Result() and norm() may be called once all elements have been looked at.
  //
  // Errors: Aborted, naming worker, tensor and element (the job must begin anew from other
  // weights); InvalidArgument (first weights are bad, and another start cannot repair them).
  absl::Status Result(const ContributionKey& key, const params::Layout& layout,
                      const params::Bucket& bucket) const;
  // Returns the norm of the elements times the scale, if all are within the limit. The result
  // depends on the elements alone, not on how they arrived.
  double norm() const;

 private:
  params::Encoding encoding_;
  float scale_;  // absolute value of the key's scale
  float limit_;  // limit for elements before they are scaled
  int64_t num_elements_;
  bool measures_norm_;
  int64_t num_seen_ = 0;
  int64_t first_bad_;  // num_elements_: no element is bad
  double square_sum_ = 0.0;
};

}  // namespace lodestar::shard
