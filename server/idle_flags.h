// SPDX-License-Identifier: Apache-2.0

// Finds flags that were given to a server and have no effect because of other flags. If there is
// such a flag, the server refuses to start, because it would train another job than the operator
// meant. Does no I/O.
#pragma once

#include <set>
#include <string>

#include "absl/status/status.h"
#include "server/server_config.h"

namespace lodestar::server {

// Checks that every flag in `given` has an effect, whatever its value. On a server that is not the
// coordinator, does not check flags that only the coordinator reads. Errors: InvalidArgument,
// naming each flag that has no effect in `config`, and which flags would give it one.
absl::Status CheckNoneIsIdle(const std::set<std::string>& given, const ServerConfig& config);

}  // namespace lodestar::server
