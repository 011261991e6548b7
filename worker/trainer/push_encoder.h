// PushEncoder: contributions in the encoding of the job. With error feedback it keeps what encoding
// has lost of the contributions that were counted, and adds it to the next one, so that in sum
// nothing is lost.
//
// The residual changes only when a contribution is acknowledged: one that was never counted leaves
// no trace. What remains is one case that nobody can decide: a life that ended before the
// acknowledgement came may have been counted; then one residual, at most what one encoding loses,
// is sent twice. The residual is of one incarnation of the servers: after a restore the
// contributions that it belongs to have not happened.
//
// Takes as much memory as the parameters for the residual, and their encoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/bucket_plan.h"
#include "common/encoding.h"
#include "common/ids.h"
#include "worker/client/work_grant.h"

namespace lodestar {

// Not thread-safe.
class PushEncoder {
 public:
  PushEncoder(Encoding encoding, bool error_feedback)
      : encoding_(encoding), error_feedback_(error_feedback) {}

  Encoding encoding() const { return encoding_; }
  // Whether the elements leave as they are; then the scale of a contribution is the servers' part.
  bool is_exact() const { return encoding_ == Encoding::kFp32; }

  // A contribution begins, which is `scale` times the vectors given to Encode(); what was not
  // committed of the last one is forgotten. `registration` stays until Commit().
  void Begin(const Registration& registration, Round round, float scale);

  // The bytes of a bucket with these elements. They stay until the next Begin(), or as long as
  // `values` if is_exact(). Once per bucket.
  absl::Span<const std::byte> Encode(const Bucket& bucket, const float* values);
  // The same bytes again.
  absl::Span<const std::byte> Encoded(const Bucket& bucket, const float* values) const;

  // The servers have acknowledged all buckets; those in `late` they did not count. `vector` has the
  // elements of the whole contribution, unchanged.
  void Commit(const float* vector, absl::Span<const uint32_t> late);

 private:
  std::byte* PlaceOf(const Bucket& bucket) { return encoded_.data() + places_[bucket.index]; }

  const Encoding encoding_;
  const bool error_feedback_;
  uint64_t server_incarnation_ = 0;  // that the residual is of
  std::vector<float> residual_;      // empty: none
  std::vector<std::byte> encoded_;
  std::vector<int64_t> places_;  // in encoded_, by bucket

  // Of the contribution under way.
  const Registration* registration_ = nullptr;
  uint64_t noise_key_ = 0;
  Round round_;
  float scale_ = 1.0f;
};

}  // namespace lodestar
