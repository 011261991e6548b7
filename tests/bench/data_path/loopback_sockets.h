// SPDX-License-Identifier: Apache-2.0

// Plain sockets on the loopback address, used for comparisons with the data path. The functions
// abort if the machine has no sockets.
#pragma once

#include "absl/types/span.h"

namespace lodestar {

struct Listener {
  int socket;
  int port;
};

// Listens on a free loopback port.
Listener ListenOnLoopback();
// Open connections that send without delay. Accept() returns a negative number once the listener is
// shut down. `send_buffer_bytes` is SO_SNDBUF. 0 means the system's default.
int Accept(const Listener& listener, int send_buffer_bytes = 0);
int ConnectToLoopback(int port, int send_buffer_bytes = 0);

// These return false if the connection is closed.
bool SendAll(int socket, absl::Span<const char> bytes);
// Sends both one after the other, without a copy.
bool SendBoth(int socket, absl::Span<const char> first, absl::Span<const char> second);

}  // namespace lodestar
