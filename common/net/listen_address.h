// Where a server listens: HOST:PORT as an operator writes it.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/net/host_port.h"

namespace lodestar {

// Port 0: the system chooses.
struct ListenAddress : HostPort {
  // All interfaces: usable for listening, not as an address to give to others.
  bool IsWildcard() const;
};

// Errors: those of ParseHostPort().
absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view flag, absl::string_view value);

}  // namespace lodestar
