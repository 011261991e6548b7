// Where a program listens or dials, as an operator writes it: HOST:PORT.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar {

struct HostPort {
  std::string host;  // without brackets
  int port = 0;

  // HOST:PORT, an IPv6 host in brackets.
  std::string ToString() const;
  // 127.0.0.0/8, ::1 or localhost: reachable from this machine only.
  bool IsLoopback() const;

  friend bool operator==(const HostPort&, const HostPort&) = default;
};

// Returns true if `host` is an address of IPv4, or of IPv6 without brackets. A name is none.
bool IsAddress(const std::string& host);

// Names of schemes that gRPC would take for something else than a host are none: "unix:1" is a
// file. `lowest_port`: 0 where the system may choose the port, else 1. Errors: InvalidArgument
// naming `flag`, the value and the form wanted.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view flag, absl::string_view value,
                                       int lowest_port);

// Whether an address that a peer gives may be dialled: it is HOST:PORT, and not too long. `what` it
// is the address of is for the text. Errors: InvalidArgument.
absl::Status CheckPeerAddress(absl::string_view what, absl::string_view address);

}  // namespace lodestar
