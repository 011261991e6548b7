// SPDX-License-Identifier: Apache-2.0

// Chooses the order in which a worker pulls the next weights while it still sends its contribution.
//
// A server sends the buckets of a pull one after the other. It has new weights of a bucket only
// once the contributions to this bucket have arrived. The forward pass first needs the buckets that
// the backward pass completes last. If a worker pulled these buckets first, no weights would arrive
// before the end of its push.
//
// So each bucket of the order is one whose contribution has been sent when the server comes to it.
// If there are several, the one that forward needs first comes first.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace lodestar::trainer {

// A bucket of the contribution that is being sent.
struct LeavingBucket {
  uint32_t bucket = 0;
  // Number of bytes to send until all bytes of this bucket are sent. Includes the bytes of buckets
  // that are sent before it.
  int64_t bytes_until_gone = 0;
  friend bool operator==(const LeavingBucket&, const LeavingBucket&) = default;
};

// Returns the order in which to pull buckets. `needed` lists all buckets in the order in which
// forward needs them. `leaving` lists the buckets whose contribution has not been sent, in the
// order of sending. `pulled_bytes` has the size of each bucket's weights, by index of the bucket.
// `up_per_down` is the number of bytes that are sent while one byte is received.
std::vector<uint32_t> PullOrder(absl::Span<const uint32_t> needed,
                                absl::Span<const LeavingBucket> leaving,
                                absl::Span<const int64_t> pulled_bytes, double up_per_down);

}  // namespace lodestar::trainer
