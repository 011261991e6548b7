// SPDX-License-Identifier: Apache-2.0

// RefusalCounts counts how often this server refused something because of a limit, for each limit.
// Refused connections are counted where they are accepted: server/firewall/connection_table.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace lodestar::limits {

enum class LimitReached : uint8_t {
  kRegistrations,       // too many registrations per minute
  kLargeRegistrations,  // with a layout: too many at a time, or too large
  kHeldRegistrations,   // registrations that wait for servers
  kHeldConnections,     // calls of StayConnected
  kNames,               // names that are too long
  kLayouts,             // too many tensors, elements or buckets, or invalid names
  kStreams,             // bulk streams of a worker, or of strangers
  kMessages,            // chunks that are too large
  kPullRequests,        // requests for more buckets than exist
  kFloods,              // connections that were ended because of the HTTP/2 frames that they sent
  kSlowPeers,           // streams that were ended because nothing moved
  kSharedMemory,        // shared regions, and calls that ask for one
  kWatches,             // watches of the status, and status answers that no client reads
  kEnrolments,          // enrolments at a time, of one address or in all
  kFailedEnrolments,    // wrong secrets, ended tokens, and enrolments that were not completed
  kHandshakes,          // failed TLS handshakes: no certificate, or none that is valid here
  kDeniedCalls,         // calls that the caller's role or certificate does not allow
  kForeignOrders,       // orders that pages of other sites have sent to this server's pages
};
inline constexpr size_t kNumLimitsReached = 18;

// Returns a text such as "too many registrations".
absl::string_view LimitReachedName(LimitReached limit);

// The class is thread-safe.
class RefusalCounts {
 public:
  void Count(LimitReached limit, uint64_t times = 1) {
    counts_[static_cast<size_t>(limit)].fetch_add(times, std::memory_order_relaxed);
  }
  uint64_t of(LimitReached limit) const {
    return counts_[static_cast<size_t>(limit)].load(std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<uint64_t>, kNumLimitsReached> counts_ = {};
};

}  // namespace lodestar::limits
