// These functions limit how much of what is sent a connection may hold (SO_SNDBUF in socket(7)),
// where the machine's own limit is wrong about its path.
//
// On a connection within one machine everything that was sent lies in memory until it is received.
// The kernel allows megabytes, which have left the caches by then and are read from memory again.
// With this limit they are received while they are there, and pulls are 1.2 times as fast
// (tests/bench/results/data_path.md). Any path with a delay needs what the kernel allows.
#pragma once

#include <cstddef>
#include <optional>

#include "absl/time/time.h"

namespace lodestar::firewall {

// Twice of it, the kernel's own overhead included, is held at most.
inline constexpr int kLocalSendBufferBytes = 256 << 10;
// If there are more connections than these, all that is under way fits no cache anyway, and small
// buffers only cost wake-ups: a tenth of the rounds of 64 workers.
inline constexpr size_t kFewConnections = 16;

// Returns whether a connection within one machine, which is one of so many, is to hold that little.
// It does not if no `round_trip` is known. Loopback may have a delay as well, that of a network
// that is emulated. The function is pure.
bool LimitsSendBuffer(bool is_loopback, std::optional<absl::Duration> round_trip,
                      size_t num_connections);

// Limits the send buffer of a connection that has just been accepted. `is_loopback`: whether it
// comes from an address of this machine. The kernel may allow less. A connection that the kernel
// refuses to change stays as it is.
void LimitSendBufferWithinMachine(int socket, bool is_loopback, size_t num_connections);

}  // namespace lodestar::firewall
