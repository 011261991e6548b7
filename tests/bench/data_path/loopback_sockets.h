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
// A connection that sends at once what it is given.
int ConnectToLoopback(int port);

// Each returns false if the connection is closed.
bool SendAll(int socket, absl::Span<const char> bytes);
// One after the other, without a copy.
bool SendBoth(int socket, absl::Span<const char> first, absl::Span<const char> second);

}  // namespace lodestar
