// SPDX-License-Identifier: Apache-2.0

// Changes the congestion control of a connection (TCP_CONGESTION in tcp(7)) from BBR to cubic if
// BBR overloads a short path.
//
// BBR estimates a path's rate from the highest rate that it has seen. If several connections begin
// to send at once over a short and slow link (10 Mbit/s without delay), that rate is far too high.
// This happens at the pulls of each round. The link's queue then drops bytes, and 14 % of all bytes
// are sent again, which costs a sixth of the time. Cubic slows down instead
// (tests/bench/results/scaling.md).
//
// On long paths that lose packets by themselves, BBR is faster than cubic, so it is kept there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace lodestar::firewall {

// SentBytes has the kernel's counts for one connection, from its beginning.
struct SentBytes {
  uint64_t sent = 0;          // including the bytes that were sent again
  uint64_t again = 0;         // bytes that were sent again
  absl::Duration round_trip;  // the shortest one
};

// Returns true if the path is short, and so many bytes were sent again that BBR must be the cause.
// Does no I/O.
bool IsMisjudged(const SentBytes& bytes);

// Switches a connection from BBR to cubic if IsMisjudged(). Returns the reason as a text for the
// log. Returns an empty text if nothing was changed.
std::string MendCongestionControl(int socket);

}  // namespace lodestar::firewall
