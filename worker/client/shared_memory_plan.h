// The functions here tell how much memory a worker shares with servers of its machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/params/bucket_plan.h"
#include "proto/bulk_options.h"

namespace lodestar::client {

// Returns the number of blocks for each direction with a server that has `shard_bytes` of the
// model, in fp32. A small shard needs no more blocks than it fills.
int SharedBlocksFor(int64_t shard_bytes, size_t block_bytes);

// Returns the size of all regions, if every server of the plan is on this machine.
int64_t SharedMemoryBytes(const std::vector<Bucket>& buckets,
                          size_t block_bytes = wire::kSharedBlockBytes);

}  // namespace lodestar::client
