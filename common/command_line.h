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

enum class CommandLineRequest { kRun, kHelp, kHelpFull, kVersion };

struct CommandLine {
  CommandLineRequest request = CommandLineRequest::kRun;
  std::set<std::string> given;  // names of the flags that were set
  // Sentences about flags that stand on the command line with two values; for people.
  std::vector<std::string> repetitions;
  std::vector<std::string> positionals;  // without the program's name
  std::vector<std::string> passed_on;    // what stands behind "--", as it is
};

struct FlagGroup {
  std::string title;
  std::vector<std::string> flags;
};

// Sets flags from `arguments` (without the program's name): --name=value, --name value, --name and
// --noname of booleans, --flagfile=PATH[,PATH...] (see common/flag_file.h), -h, --help, --helpfull,
// --version;
// "--" ends the flags. A later flag overrides an earlier one; CommandLine::repetitions tells of it.
// Errors: InvalidArgument naming the flag, the value and what was wanted (of a flag file also its
// path and line), or a flag of a similar name.
absl::StatusOr<CommandLine> ParseCommandLine(absl::Span<const std::string> arguments);

// For programs that know no words besides their flags. Errors: InvalidArgument naming the first
// word.
absl::Status CheckOnlyFlags(const CommandLine& line);

// The error of a join string that stands alone: InvalidArgument without its secret.
absl::Status StrayJoinString(absl::string_view word);

// `usage`, then every flag of `groups` with its default and help text, wrapped for a
// terminal of 80 columns.
std::string FormatHelp(absl::string_view usage, absl::Span<const FlagGroup> groups);

// `usage`, then `flags`, those that most need, each with its default and the first sentence of its
// help text, and where the others are.
std::string FormatShortHelp(absl::string_view usage, absl::Span<const absl::string_view> flags);

}  // namespace lodestar
