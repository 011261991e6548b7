// SPDX-License-Identifier: Apache-2.0

// MemoryBound is the maximum memory that a server takes, whatever is sent to it: the sum of what
// its limits allow. Memory shared with workers of the same machine is not included. It does no I/O.
#pragma once

#include <cstdint>
#include <string>

#include "server/limits/server_limits.h"

namespace lodestar::limits {

// All members are in bytes.
struct MemoryBound {
  int64_t shard = 0;        // weights, optimizer state, sums, staging, and copies for a checkpoint
  int64_t messages = 0;     // messages on their way: --message_memory
  int64_t connections = 0;  // --max_connections, and the open calls on them
  // Memory of large registrations that are being handled, and of workers that are remembered.
  int64_t registrations = 0;
  int64_t program = 0;  // code, threads, and memory that the allocator leaves unused

  int64_t total() const { return shard + messages + connections + registrations + program; }
  // Returns a text such as "3.10 GB: shard 1.00 GB, messages 1.07 GB, ...".
  std::string Describe() const;
};

// Maximum number of large registrations that are handled at one time. Their layouts may stay in
// memory until the servers have loaded.
inline constexpr int kMaxLargeRegistrations = 4;
// Maximum size of a registration that counts as small. The number of small registrations is not
// limited here, because they have no layout or a small one.
inline constexpr int64_t kSmallRegistrationBytes = 16 << 10;
// Maximum size of a registration. It is twice the maximum size of the names and shapes in a layout.
// Larger registrations are refused unread.
inline constexpr int64_t kMaxRegistrationBytes = int64_t{5} << 20;
// Maximum number of tensors in a layout that a client brings.
inline constexpr int kMaxClientTensors = 1 << 16;

// Returns the sum of what the limits allow. `shard_bytes` is ShardMemory::peak() of this server's
// shard.
MemoryBound BoundMemory(const ServerLimits& limits, int64_t shard_bytes, bool has_tls);

}  // namespace lodestar::limits
