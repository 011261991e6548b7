// SPDX-License-Identifier: Apache-2.0

// Sockets that listen on one HOST:PORT. If the host is a name with several addresses, each address
// has its own socket.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/net/host_port.h"
#include "common/runtime/file_descriptor.h"

namespace lodestar::net {

struct ListeningSockets {
  std::vector<FileDescriptor> sockets;  // at least one; non-blocking
  int port = 0;                         // the same for all sockets
  // The hosts that the sockets listen on, if only this machine can reach all of these hosts.
  // Otherwise empty.
  std::vector<std::string> loopback_only;
};

// Listens on `address`. Errors: Unavailable with the system's reason and what to do with `flag`
// ("--listen").
// - If the port is 0, the system chooses the port.
// - 0.0.0.0 and :: both mean all IPv4 and all IPv6 addresses, as in gRPC.
// - Accepted connections send at once (TCP_NODELAY). They break if sent data is not acknowledged
//   for `unacknowledged_timeout`.
// - A port can be used even if connections on it have just ended (SO_REUSEADDR).
absl::StatusOr<ListeningSockets> Listen(const HostPort& address, absl::string_view flag,
                                        absl::Duration unacknowledged_timeout);

}  // namespace lodestar::net
