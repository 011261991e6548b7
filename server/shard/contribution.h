// A contribution is what a worker pushes, as the shard sees it. This file also says which
// contributions may be counted.
#pragma once

#include <cstddef>
#include <cstdint>

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

// Names one contribution of one worker to one round; together with the bucket it is counted once.
struct ContributionKey {
  WorkerId worker;
  Incarnation incarnation;
  Round round;           // of the grant
  Version base_version;  // that the contribution was computed on
  ContributionKind kind = ContributionKind::kGradient;
  float scale = 1.0f;  // the elements are multiplied by it; for clients that clip
  Encoding encoding = Encoding::kFp32;
  // The contribution was computed on so many samples. 0 means all samples of the grant. It may also
  // be kSkippedSamples.
  int64_t num_samples = 0;

  bool is_skipped() const { return num_samples == kSkippedSamples; }
  // Returns the size of one bucket as it travels.
  int64_t BytesOf(const Bucket& of) const {
    return is_skipped() ? 0 : EncodedBytes(encoding, of.range.size());
  }
};

enum class PushOutcome : uint8_t {
  kCounted,
  kDuplicate,  // counted before
  kLate,       // the round was committed without it; dropped
};

// Checks that the job takes contributions of this kind, encoding and scale. `is_averaged` says
// whether the bucket is of averaged tensors. Errors: InvalidArgument.
absl::Status CheckForm(const ContributionKey& key, const Bucket& bucket, const JobSpec& job,
                       bool is_averaged, bool awaits_first_weights);

// Whether the bytes are such as an encoder makes. Errors: InvalidArgument naming worker, bucket and
// block.
absl::Status CheckBytes(const ContributionKey& key, const Bucket& bucket,
                        const std::byte* elements);

// Looks at the numbers of one bucket of a contribution, while they arrive or at once: each is
// looked at once, and soon, so that it is found in the cache. Not thread-safe.
class NumbersCheck {
 public:
  // `measures_norm` says whether norm() is wanted. The bucket has num_elements in all.
  NumbersCheck(const ContributionKey& key, int64_t num_elements, bool measures_norm);

  // The first num_bytes of `elements` are there, no fewer than before; they are in the encoding of
  // the key and as CheckBytes() wants them. Looks at the elements that it has not looked at, except
  // for the last few if more are to come. `last` has copies of the last of these bytes, if the
  // copies are in the cache and the bytes are not. The copies may lie anywhere.
  void Look(const std::byte* elements, int64_t num_bytes, absl::Span<const std::byte> last = {});

  // Both methods may be called once all elements have been looked at.
  //
  // Checks that the elements, times the scale of the key, are finite and within kMaxContribution.
  // Errors: Aborted, naming worker, tensor of the layout and element: begin anew from other
  // weights; InvalidArgument for first weights, which nothing can mend.
  absl::Status Result(const ContributionKey& key, const Layout& layout, const Bucket& bucket) const;
  // Returns the norm of the elements times the scale, if they are within the limit. It depends on
  // the elements alone, not on how they arrived.
  double norm() const;

 private:
  Encoding encoding_;
  float scale_;  // without its sign
  float limit_;  // of elements before they are scaled
  int64_t num_elements_;
  bool measures_norm_;
  int64_t num_seen_ = 0;
  int64_t first_bad_;  // num_elements_: none
  double square_sum_ = 0.0;
};

}  // namespace lodestar::shard
