// The sockets that listen for one HOST:PORT: several where a name has several addresses.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/net/host_port.h"
#include "common/runtime/file_descriptor.h"

namespace lodestar {

struct ListeningSockets {
  std::vector<FileDescriptor> sockets;  // at least one; non-blocking
  int port = 0;                         // of all of them
  // The addresses of all of them, if no other machine reaches any; else empty.
  std::vector<std::string> loopback_only;
};

// Listens. Port 0: the system chooses. 0.0.0.0 and :: are all addresses of both families, as with
// gRPC. What is accepted sends at once (TCP_NODELAY), and breaks when what it has sent is not
// acknowledged for `unacknowledged_timeout`. A port that another process listens on is taken; that
// of connections which have ended is not. Errors: Unavailable with the system's reason and what to
// do with `flag` ("--listen").
absl::StatusOr<ListeningSockets> Listen(const HostPort& address, absl::string_view flag,
                                        absl::Duration unacknowledged_timeout);

}  // namespace lodestar
