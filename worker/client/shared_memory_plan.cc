// SPDX-License-Identifier: Apache-2.0

#include "worker/client/shared_memory_plan.h"

#include <algorithm>
#include <map>

#include "common/storage/shared_region.h"

namespace lodestar::client {

int SharedBlocksFor(int64_t shard_bytes, size_t block_bytes) {
  const auto block = static_cast<int64_t>(block_bytes);
  return static_cast<int>(
      std::clamp<int64_t>((shard_bytes + block - 1) / block, 1, wire::kSharedBlocks));
}

int64_t SharedMemoryBytes(const std::vector<params::Bucket>& buckets, size_t block_bytes) {
  std::map<int64_t, int64_t> shard_bytes;
  for (const params::Bucket& bucket : buckets) {
    shard_bytes[bucket.shard] += bucket.range.size() * static_cast<int64_t>(sizeof(float));
  }
  int64_t bytes = 0;
  for (const auto& [shard, of_shard] : shard_bytes) {
    bytes += static_cast<int64_t>(storage::SharedRegion::kHeaderBytes) +
             2 * SharedBlocksFor(of_shard, block_bytes) * static_cast<int64_t>(block_bytes);
  }
  return bytes;
}

}  // namespace lodestar::client
