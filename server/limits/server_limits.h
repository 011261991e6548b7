// What one server takes of others, per peer and in all: those limits that an operator may have a
// reason to change. Filled from flags by server_flags, by hand in tests; each part of the server is
// given its piece. All others are constants where they hold: docs/reference/limits.md has both.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace lodestar::limits {

struct ServerLimits {
  int max_connections = 4096;
  int max_connections_per_address = 0;  // of another machine; 0 means a quarter of all
  // New ones of one address of another machine, beyond 256 at once.
  int connections_per_minute = 600;
  // From one address of another machine. Ten times as many are taken in all, and from this machine.
  int registrations_per_minute = 600;
  int streams_per_worker = 32;  // pushes and pulls that are open
  // Contributions on their way into the shard; at least two buckets' worth is taken.
  int64_t staging_bytes = int64_t{64} << 20;
  // What gRPC may hold of messages on their way.
  int64_t message_bytes = int64_t{1} << 30;
  // The longest that one chunk may be on its way; then its stream is ended.
  absl::Duration message_timeout = absl::Minutes(1);

  int connections_per_address() const;
  // Returns how many of all connections only programs of this machine get, so that psctl there has
  // a place when others have filled the port.
  int connections_kept_for_this_machine() const;
  // More than a worker may have open in all.
  int calls_per_connection() const { return streams_per_worker + 32; }
  int registrations_per_minute_in_all() const { return 10 * registrations_per_minute; }
};

// Errors: InvalidArgument naming the flag, its value and what is allowed.
absl::Status ValidateServerLimits(const ServerLimits& limits);

}  // namespace lodestar::limits
