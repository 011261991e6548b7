// In which order a worker asks for the next weights while its contribution still leaves.
//
// A server sends the buckets of a pull one after the other, and has the next weights of a bucket
// once the contributions to it are there. What forward needs first is what backward has made, and
// sends, last: asked for first, it would keep the way back to the worker idle until then. So what
// can be there before goes before it, as much as comes in the meantime; of what can be there the
// first is always what forward needs first.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace lodestar::trainer {

// A bucket of a contribution under way.
struct LeavingBucket {
  uint32_t bucket = 0;
  int64_t bytes_until_gone = 0;  // All bytes that leave until the bucket has left.
  friend bool operator==(const LeavingBucket&, const LeavingBucket&) = default;
};

// Returns the order in which to pull buckets. `needed` has the buckets in the order in which
// forward needs them. `leaving` has those of them whose contribution has not left, in the order in
// which it will. `pulled_bytes` has the bytes of the weights of each bucket, by index.
// `up_per_down` is the number of bytes that go up while one comes down.
std::vector<uint32_t> PullOrder(absl::Span<const uint32_t> needed,
                                absl::Span<const LeavingBucket> leaving,
                                absl::Span<const int64_t> pulled_bytes, double up_per_down);

}  // namespace lodestar::trainer
