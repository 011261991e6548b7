// Finds flags that were given to a server and cannot have an effect, because of what other flags
// say. An operator who gives a flag means something by it. The server therefore refuses to start
// instead of training another job than the one that was meant. Pure.
#pragma once

#include <set>
#include <string>

#include "absl/status/status.h"
#include "server/server_config.h"

namespace lodestar::server {

// `given` has the names of the flags that were given, whatever their values. Errors:
// InvalidArgument naming each that has no effect in `config`, and what it would count with. On a
// server that is not the coordinator, flags that only the coordinator reads are not looked at.
absl::Status CheckNoneIsIdle(const std::set<std::string>& given, const ServerConfig& config);

}  // namespace lodestar::server
