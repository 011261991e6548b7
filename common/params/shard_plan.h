// SPDX-License-Identifier: Apache-2.0

// Cuts the parameter space into one contiguous shard per server. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/params/layout.h"

namespace lodestar::params {

inline constexpr int kMaxServers = 256;

// Returns the number of elements of a segment, over which sums of squares are computed. It is a
// power of two that depends only on the layout. Each block starts a new segment. Shards and buckets
// end only where a segment ends. So the norm of a gradient is the same to the bit for any number of
// servers.
int64_t SegmentElements(const Layout& layout);

// Returns the segments of `range`, in order. `range` must start and end at segment or block
// boundaries.
std::vector<ElementRange> SegmentsOf(const Layout& layout, ElementRange range);

// Returns num_servers contiguous ranges that cover the space exactly once. If the space has at
// least 64 elements per server, sizes differ from the mean by at most 5 %. No shard is empty.
// Errors: InvalidArgument if num_servers < 1, or exceeds kMaxServers or the number of elements.
absl::StatusOr<std::vector<ElementRange>> PlanShards(const Layout& layout, int num_servers);

}  // namespace lodestar::params
