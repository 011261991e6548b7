// The most memory that a server takes, whatever is sent to it: the sum of what its limits allow.
// Memory shared with workers of the same machine is not in it. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "server/limits/server_limits.h"

namespace lodestar::limits {

// In bytes.
struct MemoryBound {
  int64_t shard = 0;        // weights, optimizer state, sums, staging, and copies for a checkpoint
  int64_t messages = 0;     // on their way: --message_memory
  int64_t connections = 0;  // --max_connections, and the calls that are open on them
  // Large ones that are being looked at, and workers that are remembered.
  int64_t registrations = 0;
  int64_t program = 0;  // code, threads, and what memory allocation leaves unused

  int64_t total() const { return shard + messages + connections + registrations + program; }
  // "3.10 GB: shard 1.00 GB, messages 1.07 GB, ..."
  std::string Describe() const;
};

// At a time; each may be parsed, and kept until servers have loaded.
inline constexpr int kMaxLargeRegistrations = 4;
// Smaller ones are not counted: they bring no layout of a model, or a small one.
inline constexpr int64_t kSmallRegistrationBytes = 16 << 10;
// Twice the most that names and shapes of a layout may take: larger ones are refused unread.
inline constexpr int64_t kMaxRegistrationBytes = int64_t{5} << 20;
// Maximum number of tensors in a layout that a client brings.
inline constexpr int kMaxClientTensors = 1 << 16;

// `shard_bytes`: ShardMemory::peak() of this server's.
MemoryBound BoundMemory(const ServerLimits& limits, int64_t shard_bytes, bool has_tls);

}  // namespace lodestar::limits
