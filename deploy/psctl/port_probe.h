// Whether anybody listens at an address, whatever it says there: what a server that hangs has in
// common with one that works.
#pragma once

#include <string>

#include "absl/time/time.h"

namespace lodestar {

// Whether the system at `address`, HOST:PORT, takes a TCP connection within `patience`, which it
// does for a process that is stopped, too. Blocks. False also where the name is not known.
bool AcceptsConnections(const std::string& address, absl::Duration patience);

}  // namespace lodestar
