// SPDX-License-Identifier: Apache-2.0

// Limits the send buffer (SO_SNDBUF in socket(7)) of connections within one machine.
//
// Such a connection keeps all sent bytes in memory until they are received. The kernel allows
// megabytes, which do not fit into the CPU's caches, and the receiver must read them from main
// memory. With the limit, they stay in the caches, and pulls are 1.2 times as fast
// (tests/bench/results/data_path.md). A path with a delay needs the kernel's larger buffer.
#pragma once

#include <cstddef>
#include <optional>

#include "absl/time/time.h"

namespace lodestar::firewall {

// Size of the limited send buffer. The kernel may use up to twice as much, including its own
// overhead.
inline constexpr int kLocalSendBufferBytes = 256 << 10;
// Maximum number of connections for which buffers are limited. The sent bytes of more connections
// do not fit into the caches anyway. Small buffers then only cost wake-ups: with 64 workers, rounds
// took 10 % longer.
inline constexpr size_t kFewConnections = 16;

// Returns true if the send buffer should be limited: the connection is within this machine, there
// are few connections, and the round trip is known and short. A long round trip shows an emulated
// network, which delays loopback too. Does no I/O.
bool LimitsSendBuffer(bool is_loopback, std::optional<absl::Duration> round_trip,
                      size_t num_connections);

// Limits the send buffer of a newly accepted connection if LimitsSendBuffer(). `is_loopback` says
// whether the peer is on this machine. The kernel may choose a smaller buffer. If setting it fails,
// nothing changes.
void LimitSendBufferWithinMachine(int socket, bool is_loopback, size_t num_connections);

}  // namespace lodestar::firewall
