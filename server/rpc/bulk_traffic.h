// SPDX-License-Identifier: Apache-2.0

// Counts of payload bytes, shared by the streams of one service.
#pragma once

#include <atomic>
#include <cstdint>

namespace lodestar::rpc {

struct TrafficCounters {
  std::atomic<uint64_t> bytes_received{0};
  std::atomic<uint64_t> bytes_sent{0};
};

}  // namespace lodestar::rpc
