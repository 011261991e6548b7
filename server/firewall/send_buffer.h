// SPDX-License-Identifier: Apache-2.0

// Limits how many sent bytes a connection may hold (SO_SNDBUF in socket(7)), if the machine's own
// limit misjudges the path.
//
// On a connection within one machine, all sent bytes are in memory until they are received. The
// kernel allows megabytes, which is more than the CPU's caches hold, so the receiver reads the
// bytes from main memory. With this limit they are received while they are in the caches, and pulls
// are 1.2 times as fast (tests/bench/results/data_path.md). A path with a delay needs what the
// kernel allows.
#pragma once

#include <cstddef>
#include <optional>

#include "absl/time/time.h"

namespace lodestar::firewall {

// Limit of the send buffer. The kernel holds at most twice as much, including its own overhead.
inline constexpr int kLocalSendBufferBytes = 256 << 10;
// Maximum number of connections for which buffers are limited. With more connections, the bytes
// under way do not fit into the caches anyway, and small buffers only cost wake-ups: with 64
// workers, rounds took 10 % longer.
inline constexpr size_t kFewConnections = 16;

// Returns true if the send buffer of a connection within one machine should be limited.
// `num_connections` is the number of such connections. Returns false if `round_trip` is not known.
// Loopback may have a delay too, if a network is emulated. The function does no I/O.
bool LimitsSendBuffer(bool is_loopback, std::optional<absl::Duration> round_trip,
                      size_t num_connections);

// Limits the send buffer of a connection that has just been accepted. `is_loopback` says whether it
// comes from an address of this machine. The kernel may allow less. If the kernel refuses the
// change, the connection stays as it is.
void LimitSendBufferWithinMachine(int socket, bool is_loopback, size_t num_connections);

}  // namespace lodestar::firewall
