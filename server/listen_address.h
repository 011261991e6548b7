// Where a server listens: HOST:PORT as an operator writes it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar {

struct ListenAddress {
  std::string host;  // without brackets
  int port = 0;      // 0: the system chooses

  // HOST:PORT, an IPv6 host in brackets.
  std::string ToString() const;
  // 127.0.0.0/8, ::1 or localhost: reachable from this machine only.
  bool IsLoopback() const;
  // All interfaces: usable for listening, not as an address to give to others.
  bool IsWildcard() const;
};

// Errors: InvalidArgument naming `flag`, the value and the form wanted.
absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view flag, absl::string_view value);

}  // namespace lodestar
