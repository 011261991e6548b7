// SPDX-License-Identifier: Apache-2.0

// Finds flags that were given to a server and have no effect, because of what other flags say. An
// operator who gives a flag wants an effect. Therefore the server refuses to start, instead of
// training another job than the operator meant. Does no I/O.
#pragma once

#include <set>
#include <string>

#include "absl/status/status.h"
#include "server/server_config.h"

namespace lodestar::server {

// Checks that every given flag has an effect. `given` has the names of the flags that were given,
// whatever their values. On a server that is not the coordinator, flags that only the coordinator
// reads are ignored. Errors: InvalidArgument, naming each flag that has no effect in `config`, and
// which flags would give it one.
absl::Status CheckNoneIsIdle(const std::set<std::string>& given, const ServerConfig& config);

}  // namespace lodestar::server
