// SPDX-License-Identifier: Apache-2.0

// Corrects the congestion control of a connection (TCP_CONGESTION in tcp(7)) if the machine's
// default misjudges the path.
//
// BBR models a path by the highest rate and the shortest round trip that it has seen. If several
// connections over a short and slow link (10 Mbit/s without delay) begin to send at once, as all
// pulls of a round do, BBR sees far too high a rate. It sends at that rate, and the bytes that do
// not fit into the link's queue are sent again: 14 % of all bytes, which cost a sixth of the time.
// Cubic sends more slowly instead (tests/bench/results/scaling.md). On long paths that lose packets
// by themselves, BBR keeps going and Cubic does not, so these paths are left alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace lodestar::firewall {

// SentBytes is what the kernel has counted for one connection since it began.
struct SentBytes {
  uint64_t sent = 0;          // including the bytes that were sent again
  uint64_t again = 0;         // bytes that were sent again
  absl::Duration round_trip;  // the shortest one
};

// Returns true if more bytes were sent again than the path's own losses can explain. Does no I/O.
bool IsMisjudged(const SentBytes& bytes);

// Switches a connection from BBR to cubic if BBR misjudges its path. Returns why, for the log. The
// text is empty if nothing was done.
std::string MendCongestionControl(int socket);

}  // namespace lodestar::firewall
