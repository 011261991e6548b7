// SPDX-License-Identifier: Apache-2.0

// HOST:PORT, the address on which a program listens or to which it connects.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar::net {

struct HostPort {
  std::string host;  // without brackets
  int port = 0;

  // Returns HOST:PORT, with an IPv6 host in brackets.
  std::string ToString() const;
  // Returns true for 127.0.0.0/8, ::1 and localhost, which only this machine can reach.
  bool IsLoopback() const;

  friend bool operator==(const HostPort&, const HostPort&) = default;
};

// Returns true if `host` is an IPv4 address, or an IPv6 address without brackets. Returns false for
// names.
bool IsAddress(const std::string& host);

// Reads HOST:PORT. Refuses a host that is a URI scheme of gRPC: gRPC reads "unix:1" as a file.
// `lowest_port` is 0 if the system may choose the port, else 1. Errors: InvalidArgument naming
// `flag`, the value and the form wanted.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view flag, absl::string_view value,
                                       int lowest_port);

// Checks an address that a peer has sent: it must be HOST:PORT, and not too long. In the error,
// `what` names the process that has the address. Errors: InvalidArgument.
absl::Status CheckPeerAddress(absl::string_view what, absl::string_view address);

}  // namespace lodestar::net
