// The command line of ps_server. The flags themselves are private to server_flags.cc; all other
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
  CommandLineRequest request = CommandLineRequest::kRun;
  ServerConfig config;  // It is valid if request is kRun.
  // Flags given to a server that is not the coordinator although only the coordinator's count.
  std::vector<std::string> ignored;
  // Settings that are allowed, and may do less than was meant. They are for the log.
  std::vector<std::string> doubts;
};

// `arguments` lacks the program's name. Reads flag files and --model=FILE, and opens nothing else.
// Errors: InvalidArgument (or NotFound for a file) naming the flag, its value and what is allowed.
absl::StatusOr<ServerCommandLine> ParseServerCommandLine(absl::Span<const std::string> arguments);

// Return what --helpfull and --help print.
std::string ServerHelp();
std::string ServerShortHelp();

// Returns titles and names as --helpfull shows them.
std::vector<FlagGroup> ServerFlagGroups();

}  // namespace lodestar::server
