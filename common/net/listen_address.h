// SPDX-License-Identifier: Apache-2.0

// HOST:PORT on which a server listens, as an operator writes it.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/net/host_port.h"

namespace lodestar::net {

// Port 0 means that the system chooses the port.
struct ListenAddress : HostPort {
  // Returns true if the address means all interfaces. A server can listen on such an address, but
  // no other process can connect to it.
  bool IsWildcard() const;
};

// Reads HOST:PORT. Errors: those of ParseHostPort().
absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view flag, absl::string_view value);

}  // namespace lodestar::net
