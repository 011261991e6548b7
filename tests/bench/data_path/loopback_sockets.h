// Plain sockets of this machine, for what the data path is measured beside. Abort if the machine
// has none.
#pragma once

#include "absl/types/span.h"

namespace lodestar {

struct Listener {
  int socket;
  int port;
};

// On a free loopback port.
Listener ListenOnLoopback();
// Connections, which send at once what they are given. Accept() returns a negative number once the
// listener is shut down. `send_buffer_bytes`: SO_SNDBUF. 0 means what the system
// takes.
int Accept(const Listener& listener, int send_buffer_bytes = 0);
int ConnectToLoopback(int port, int send_buffer_bytes = 0);

// Each returns false if the connection is closed.
bool SendAll(int socket, absl::Span<const char> bytes);
// One after the other, without a copy.
bool SendBoth(int socket, absl::Span<const char> first, absl::Span<const char> second);

}  // namespace lodestar
