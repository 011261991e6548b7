// SPDX-License-Identifier: Apache-2.0

// Cuts shards into buckets. A bucket is the unit of aggregation, of transfer and of versions. Pure.
// Workers and servers compute the same plan.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/params/layout.h"

namespace lodestar::params {

inline constexpr int64_t kDefaultBucketBytes = 4 << 20;
// Maximum number of buckets. A registration lists all buckets in one message, which cannot hold
// more.
inline constexpr int64_t kMaxBuckets = 1 << 20;

struct Bucket {
  uint32_t index = 0;  // position in the plan, and number of the bucket in messages
  int shard = 0;
  int block = 0;
  ElementRange range;
};

// Returns the buckets in the order of the parameter space. Each element is in exactly one bucket.
// Each bucket is in one block and one shard. A bucket has at most bucket_bytes of fp32, unless it
// has only one segment. Errors: InvalidArgument if `shards` does not cover the space, bucket_bytes
// < 4, or there would be more than kMaxBuckets.
absl::StatusOr<std::vector<Bucket>> PlanBuckets(const Layout& layout,
                                                const std::vector<ElementRange>& shards,
                                                int64_t bucket_bytes);

}  // namespace lodestar::params
