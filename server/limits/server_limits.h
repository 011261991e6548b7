// SPDX-License-Identifier: Apache-2.0

// ServerLimits are the limits of one server, per peer and in all, that an operator may have a
// reason to change. They are filled from flags by server_flags, and by hand in tests. Each part of
// the server gets its own limits. Other limits are constants in the code that uses them.
// docs/reference/limits.md lists those of both kinds that operators meet.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace lodestar::limits {

struct ServerLimits {
  int max_connections = 4096;
  int max_connections_per_address = 0;  // from one remote address; 0 means max_connections / 4
  // Maximum number of new connections per minute from one remote address. 256 more may come at
  // once.
  int connections_per_minute = 600;
  // Maximum number of registrations per minute from one remote address. From this machine, and from
  // all addresses together, ten times as many are allowed.
  int registrations_per_minute = 600;
  int streams_per_worker = 32;  // maximum number of open pushes and pulls of a worker
  // Size of the space for contributions that are arriving, in bytes. If it is less than two
  // buckets, the size of two buckets is used.
  int64_t staging_bytes = int64_t{64} << 20;
  // Maximum number of bytes that gRPC may hold for messages on their way.
  int64_t message_bytes = int64_t{1} << 30;
  // Maximum time that one chunk may take to arrive. If it takes longer, its stream is ended.
  absl::Duration message_timeout = absl::Minutes(1);

  int connections_per_address() const;
  // Returns how many of all connections are reserved for programs on this machine. So psctl can
  // connect from here even if other machines hold all other connections.
  int connections_kept_for_this_machine() const;
  // Returns the maximum number of open calls on one connection. It is more than a worker needs.
  int calls_per_connection() const { return streams_per_worker + 32; }
  int registrations_per_minute_in_all() const { return 10 * registrations_per_minute; }
};

// Checks the limits. Errors: InvalidArgument, naming the flag, its value and what is allowed.
absl::Status ValidateServerLimits(const ServerLimits& limits);

}  // namespace lodestar::limits
