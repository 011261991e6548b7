// Cuts the parameter space into one contiguous shard per server. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/params/layout.h"

namespace lodestar {

inline constexpr int kMaxServers = 256;

// Length in elements of the segments over which sums of squares are formed: a power of two that
// depends on the layout alone. Segments start at each block's start; shards and buckets end only at
// segment or block ends. So the norm of a gradient is the same to the bit however many servers
// there are.
int64_t SegmentElements(const Layout& layout);

// The segments of `range`, in order. `range` must start and end at segment or block boundaries.
std::vector<ElementRange> SegmentsOf(const Layout& layout, ElementRange range);

// num_servers contiguous ranges that cover the space exactly once; sizes differ from the mean by at
// most 5 % where the space has at least 64 elements per server. No shard is empty. Errors:
// InvalidArgument if num_servers < 1 or exceeds kMaxServers or the number of elements.
absl::StatusOr<std::vector<ElementRange>> PlanShards(const Layout& layout, int num_servers);

}  // namespace lodestar
