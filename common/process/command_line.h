// SPDX-License-Identifier: Apache-2.0

// Parses the command lines of our binaries: Abseil's registered flags and flags of a program's own.
// Unlike absl::ParseCommandLine() it returns errors and does not end the process, so that main()
// can use our exit codes. It reports which flags were given, and prints help in groups. Only for
// files with a main() and for tests.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lodestar::process {

enum class CommandLineRequest { kRun, kHelp, kHelpFull, kVersion };

// A flag that is not registered with Abseil: the program reads its text from CommandLine::own.
struct OwnFlag {
  enum class Type : uint8_t { kBool, kInt32, kInt64, kUint64, kDouble, kText };
  std::string name;
  std::string help;
  std::string default_text;
  Type type = Type::kText;
  bool takes_auto = false;  // takes a number or the word auto
};

// The word that an OwnFlag with takes_auto takes besides numbers.
inline constexpr char kAutoText[] = "auto";

struct CommandLine {
  CommandLineRequest request = CommandLineRequest::kRun;
  std::set<std::string> given;  // names of the flags that were set
  // Texts of the OwnFlags that were set, by name. Numbers are decimal, bools true or false.
  std::map<std::string, std::string> own;
  // Messages for users: flags that have no value, and flags that the command line sets to two
  // values.
  std::vector<std::string> doubts;
  std::vector<std::string> positionals;  // without the program's name
  std::vector<std::string> passed_on;    // arguments behind "--", unchanged
};

struct FlagGroup {
  std::string title;
  std::vector<std::string> flags;
};

// Sets Abseil's flags and the flags of `own` from `arguments` (without the program's name).
// Accepts:
// - --name=value and --name value;
// - --name and --noname for booleans;
// - --flagfile=PATH[,PATH...] (see common/process/flag_file.h);
// - -h, --help, --helpfull and --version;
// - "--", which ends the flags.
//
// A later flag overrides an earlier one, and CommandLine::doubts says so. Errors: InvalidArgument
// naming the flag, the value and what was wanted, or a known flag with a similar name. For a flag
// file the error also names its path and the line.
absl::StatusOr<CommandLine> ParseCommandLine(absl::Span<const std::string> arguments,
                                             absl::Span<const OwnFlag> own = {});

// Checks that the command line has only flags, for programs that take no other arguments. Errors:
// InvalidArgument naming the first argument that is not a flag.
absl::Status CheckOnlyFlags(const CommandLine& line);

// Returns the error for `word`, a join string on the command line without a flag: InvalidArgument,
// without the secret.
absl::Status StrayJoinString(absl::string_view word);

// Returns `usage`, then every flag of `groups` with its default and help text, wrapped for a
// terminal of 80 columns.
std::string FormatHelp(absl::string_view usage, absl::Span<const FlagGroup> groups,
                       absl::Span<const OwnFlag> own = {});

// Returns `usage`, then each flag of `flags` with its default and the first sentence of its help
// text, then where the other flags are described. `flags` are the flags that users need most.
std::string FormatShortHelp(absl::string_view usage, absl::Span<const absl::string_view> flags,
                            absl::Span<const OwnFlag> own = {});

}  // namespace lodestar::process
