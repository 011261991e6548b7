// SPDX-License-Identifier: Apache-2.0

// Finds out whether a program listens at an address. A program that hangs, and so does not answer,
// still listens.
#pragma once

#include <string>

#include "absl/time/time.h"

namespace lodestar::psctl {

// Returns true if the system at `address`, HOST:PORT, accepts a TCP connection within `patience`.
// The system also accepts connections for a process that is stopped. Blocks. Returns false if the
// name is not known.
bool AcceptsConnections(const std::string& address, absl::Duration patience);

}  // namespace lodestar::psctl
