// Command lines of our binaries over Abseil's registered flags. Unlike absl::ParseCommandLine() it
// returns errors instead of ending the process (so that main() can use our exit codes), tells which
// flags were given, and prints help in groups. For files with a main() and tests only.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lodestar {

enum class CommandLineRequest { kRun, kHelp, kVersion };

struct CommandLine {
  CommandLineRequest request = CommandLineRequest::kRun;
  std::set<std::string> given;           // names of the flags that were set
  std::vector<std::string> positionals;  // without the program's name
};

struct FlagGroup {
  std::string title;
  std::vector<std::string> flags;
};

// Sets flags from `arguments` (without the program's name): --name=value, --name value, --name and
// --noname of booleans, --flagfile=PATH[,PATH...] (one flag per line, # starts a comment line),
// --help, --version; "--" ends the flags. A later flag overrides an earlier one. Errors:
// InvalidArgument naming the flag and the value.
absl::StatusOr<CommandLine> ParseCommandLine(absl::Span<const std::string> arguments);

// `usage`, then every flag of `groups` with its default and help text, wrapped for a terminal.
std::string FormatHelp(absl::string_view usage, absl::Span<const FlagGroup> groups);

}  // namespace lodestar
