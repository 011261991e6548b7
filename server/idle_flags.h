// Flags that were given to a server and cannot have an effect, because of what other flags say.
// Whoever gives one means something by it, so the server refuses to start instead of training
// another job than the one that was meant. Pure.
#pragma once

#include <set>
#include <string>

#include "absl/status/status.h"
#include "server/server_config.h"

namespace lodestar {

// `given`: names of the flags that were given, whatever their values. Errors: InvalidArgument
// naming each that has no effect in `config`, and what it would count with. What only the
// coordinator reads is not looked at on another server.
absl::Status CheckNoneIsIdle(const std::set<std::string>& given, const ServerConfig& config);

}  // namespace lodestar
