// SPDX-License-Identifier: Apache-2.0

// Computes how much memory a worker shares with servers of its machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/params/bucket_plan.h"
#include "proto/bulk_options.h"

namespace lodestar::client {

// Returns the number of blocks per direction for a server with `shard_bytes` of fp32 weights. A
// small shard gets no more blocks than it can fill.
int SharedBlocksFor(int64_t shard_bytes, size_t block_bytes);

// Returns the total size of all regions if every server is on this machine.
int64_t SharedMemoryBytes(const std::vector<params::Bucket>& buckets,
                          size_t block_bytes = wire::kSharedBlockBytes);

}  // namespace lodestar::client
