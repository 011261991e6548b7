// SPDX-License-Identifier: Apache-2.0

#include "server/limits/server_limits.h"

#include <algorithm>

#include "common/runtime/flag_range.h"
#include "common/runtime/status_macros.h"

namespace lodestar::limits {
namespace {

constexpr int kMinConnections = 8;
constexpr int kMaxConnections = 1 << 20;
constexpr int kMaxRegistrations = 1'000'000;
// Minimum and maximum of streams per worker. The minimum is 8 because a worker with two data
// channels has several streams open on each channel.
constexpr int kMinStreams = 8;
constexpr int kMaxStreams = 1 << 16;
constexpr int64_t kMinStagingBytes = int64_t{1} << 20;
constexpr int64_t kMinMessageBytes = int64_t{64} << 20;
constexpr int64_t kMaxBytes = int64_t{1} << 50;
constexpr absl::Duration kShortestTimeout = absl::Seconds(1);
constexpr absl::Duration kLongestTimeout = absl::Hours(24);

}  // namespace

int ServerLimits::connections_per_address() const {
  return max_connections_per_address > 0 ? max_connections_per_address
                                         : std::max(max_connections / 4, 1);
}

int ServerLimits::connections_kept_for_this_machine() const {
  return std::clamp(max_connections / 8, 1, 16);
}

absl::Status ValidateServerLimits(const ServerLimits& limits) {
  RETURN_IF_ERROR(
      CheckWholeRange("max_connections", limits.max_connections, kMinConnections, kMaxConnections));
  RETURN_IF_ERROR(CheckWholeRange("max_connections_per_address", limits.max_connections_per_address,
                                  0, limits.max_connections));
  RETURN_IF_ERROR(CheckWholeRange("connections_per_minute", limits.connections_per_minute, 1,
                                  kMaxRegistrations));
  RETURN_IF_ERROR(CheckWholeRange("registrations_per_minute", limits.registrations_per_minute, 1,
                                  kMaxRegistrations));
  RETURN_IF_ERROR(
      CheckWholeRange("streams_per_worker", limits.streams_per_worker, kMinStreams, kMaxStreams));
  RETURN_IF_ERROR(
      CheckWholeRange("staging_limit", limits.staging_bytes, kMinStagingBytes, kMaxBytes));
  RETURN_IF_ERROR(
      CheckWholeRange("message_memory", limits.message_bytes, kMinMessageBytes, kMaxBytes));
  return CheckDurationRange("message_timeout", limits.message_timeout, kShortestTimeout,
                            kLongestTimeout);
}

}  // namespace lodestar::limits
