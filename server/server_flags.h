// SPDX-License-Identifier: Apache-2.0

// The command line of ps_server. The flags themselves are private to server_flags.cc. All other
// code sees a ServerConfig. Only server_main and the flags' test include this file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/process/command_line.h"
#include "server/server_config.h"

namespace lodestar::server {

struct ServerCommandLine {
  process::CommandLineRequest request = process::CommandLineRequest::kRun;
  ServerConfig config;  // valid if request is kRun
  // Flags that were given to a server that is not the coordinator, although only the coordinator
  // uses them.
  std::vector<std::string> ignored;
  // Messages for the log about settings that are allowed, but may do less than the operator meant.
  std::vector<std::string> doubts;
};

// Parses the command line. `arguments` must not have the program's name. Reads flag files and
// --model=FILE, and opens nothing else. Errors: InvalidArgument (NotFound for a file), naming the
// flag, its value and what is allowed.
absl::StatusOr<ServerCommandLine> ParseServerCommandLine(absl::Span<const std::string> arguments);

// Return what --helpfull and --help print.
std::string ServerHelp();
std::string ServerShortHelp();

// Returns the titles and names of flags as --helpfull shows them.
std::vector<process::FlagGroup> ServerFlagGroups();

}  // namespace lodestar::server
