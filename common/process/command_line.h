// Command lines of our binaries over Abseil's registered flags, and flags of their own. Unlike
// absl::ParseCommandLine() it returns errors instead of ending the process (so that main() can use
// our exit codes), tells which flags were given, and prints help in groups. For files with a main()
// and tests only.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lodestar {

enum class CommandLineRequest { kRun, kHelp, kHelpFull, kVersion };

// A flag that is not registered with Abseil: the program reads its text from CommandLine::own.
struct OwnFlag {
  enum class Type : uint8_t { kBool, kInt32, kInt64, kUint64, kDouble, kText };
  std::string name;
  std::string help;
  std::string default_text;
  Type type = Type::kText;
  bool takes_auto = false;  // a number, or the word auto
};

// The word of OwnFlag::takes_auto.
inline constexpr char kAutoText[] = "auto";

struct CommandLine {
  CommandLineRequest request = CommandLineRequest::kRun;
  std::set<std::string> given;  // names of the flags that were set
  // Texts of the OwnFlags that were set, by name. Numbers are decimal, bools true or false.
  std::map<std::string, std::string> own;
  // Sentences about flags that stand on the command line with two values, and about those that are
  // given without any; for people.
  std::vector<std::string> doubts;
  std::vector<std::string> positionals;  // without the program's name
  std::vector<std::string> passed_on;    // what stands behind "--", as it is
};

struct FlagGroup {
  std::string title;
  std::vector<std::string> flags;
};

// Sets Abseil's flags and those of `own` from `arguments` (without the program's name):
// --name=value, --name value, --name and
// --noname of booleans, --flagfile=PATH[,PATH...] (see common/process/flag_file.h), -h, --help,
// --helpfull,
// --version;
// "--" ends the flags. A later flag overrides an earlier one; CommandLine::doubts tells of it.
// Errors: InvalidArgument naming the flag, the value and what was wanted (of a flag file also its
// path and line), or a flag of a similar name.
absl::StatusOr<CommandLine> ParseCommandLine(absl::Span<const std::string> arguments,
                                             absl::Span<const OwnFlag> own = {});

// For programs that know no words besides their flags. Errors: InvalidArgument naming the first
// word.
absl::Status CheckOnlyFlags(const CommandLine& line);

// The error of a join string that stands alone: InvalidArgument without its secret.
absl::Status StrayJoinString(absl::string_view word);

// `usage`, then every flag of `groups` with its default and help text, wrapped for a
// terminal of 80 columns.
std::string FormatHelp(absl::string_view usage, absl::Span<const FlagGroup> groups,
                       absl::Span<const OwnFlag> own = {});

// `usage`, then `flags`, those that most need, each with its default and the first sentence of its
// help text, and where the others are.
std::string FormatShortHelp(absl::string_view usage, absl::Span<const absl::string_view> flags,
                            absl::Span<const OwnFlag> own = {});

}  // namespace lodestar
