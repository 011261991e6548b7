// How often what others wanted of this server was refused because of a limit, by limit. Connections
// are counted where they are accepted: server/firewall/connection_table.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace lodestar::limits {

enum class LimitReached : uint8_t {
  kRegistrations,       // per minute
  kLargeRegistrations,  // with a layout: at a time, or too large to be looked at
  kHeldRegistrations,   // that wait for servers
  kHeldConnections,     // calls of StayConnected
  kNames,               // too long
  kLayouts,             // too many tensors, elements or buckets, or names that are none
  kStreams,             // of a worker, or of strangers
  kMessages,            // chunks that are too large
  kPullRequests,        // for more buckets than there are
  kFloods,              // connections that were ended for what HTTP/2 they send
  kSlowPeers,           // streams that were ended because nothing moved
  kSharedMemory,        // regions, and calls for some
  kWatches,             // of the status, and answers with it that no client reads
  kEnrolments,          // at a time, of one address or in all
  kFailedEnrolments,    // wrong secrets, tokens that have ended, and those left half-way
  kHandshakes,          // of TLS, that failed: no certificate, or none that counts here
  kDeniedCalls,         // of those whose role or certificate does not allow it
  kForeignOrders,       // at the pages, that foreign pages have sent
};
inline constexpr size_t kNumLimitsReached = 18;

// "too many registrations".
absl::string_view LimitReachedName(LimitReached limit);

// Thread-safe.
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
