// Which congestion control a connection has (TCP_CONGESTION in tcp(7)), where the machine's own is
// wrong about its path.
//
// BBR models a path by the highest rate and the shortest round trip that it has seen. Several
// connections that begin to send at once, as all pulls of a round do, over a short and slow link
// (10 Mbit/s without delay) make it see far too high a rate; it sends that, and what the link's
// queue has no room for goes again: 14 % of all bytes there, which cost a sixth of the time. Cubic
// backs off instead (tests/bench/results/scaling.md). On long paths that lose packets by themselves
// it is BBR that keeps going, so these are left alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace lodestar::firewall {

// SentBytes is what the kernel has counted of one connection since it began.
struct SentBytes {
  uint64_t sent = 0;          // those that were sent again, too
  uint64_t again = 0;         // of them
  absl::Duration round_trip;  // the shortest
};

// Pure. Whether so much was sent again that it is not the path's own loss.
bool IsMisjudged(const SentBytes& bytes);

// Gives a connection cubic where it has BBR and BBR is wrong about its path. Returns why, for the
// log. The text is empty if nothing was done.
std::string MendCongestionControl(int socket);

}  // namespace lodestar::firewall
