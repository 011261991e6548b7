// SPDX-License-Identifier: Apache-2.0

// Chooses the order in which a worker asks for the next weights while it still sends its
// contribution.
//
// A server sends the buckets of a pull one after the other. It has the new weights of a bucket once
// the contributions to the bucket have arrived. Forward first needs the buckets that backward
// completes last. If a worker asked for these buckets first, no weights would arrive until the end
// of the push. So the worker first asks for buckets whose contribution has been sent. It asks for
// as many of them as can arrive while the rest of the contribution is sent. Among them, the buckets
// that forward needs first come first.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace lodestar::trainer {

// A bucket of the contribution that is being sent.
struct LeavingBucket {
  uint32_t bucket = 0;
  // Number of bytes to send until the whole bucket has been sent, including those of earlier
  // buckets.
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
