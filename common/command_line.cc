#include "common/command_line.h"

#include <fstream>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"

namespace lodestar {
namespace {

constexpr size_t kHelpColumns = 100;
constexpr size_t kHelpIndent = 6;
// Flag files may include flag files; more than this is a cycle.
constexpr int kMaxFlagFileDepth = 8;

class Parser {
 public:
  absl::Status Parse(absl::Span<const std::string> arguments, int depth) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      absl::string_view argument = arguments[i];
      if (argument == "--") {
        for (++i; i < arguments.size(); ++i) result.positionals.push_back(arguments[i]);
        return absl::OkStatus();
      }
      if (argument.size() < 2 || argument[0] != '-') {
        result.positionals.push_back(arguments[i]);
        continue;
      }
      absl::ConsumePrefix(&argument, "-");
      absl::ConsumePrefix(&argument, "-");
      const bool has_next = i + 1 < arguments.size();
      ASSIGN_OR_RETURN(const bool used_next,
                       ParseFlag(argument, has_next ? &arguments[i + 1] : nullptr, depth));
      if (used_next) ++i;
    }
    return absl::OkStatus();
  }

  CommandLine result;

 private:
  // Returns whether `next` was taken as the value.
  absl::StatusOr<bool> ParseFlag(absl::string_view argument, const std::string* next, int depth) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(argument, absl::MaxSplits('=', 1));
    const absl::string_view name = parts.first;
    const bool has_value = name.size() != argument.size();
    if (!has_value && (name == "help" || name == "helpfull")) {
      result.request = CommandLineRequest::kHelp;
      return false;
    }
    if (!has_value && name == "version") {
      result.request = CommandLineRequest::kVersion;
      return false;
    }
    if (has_value && name == "flagfile") {
      for (absl::string_view path : absl::StrSplit(parts.second, ',')) {
        RETURN_IF_ERROR(ParseFlagFile(std::string(path), depth + 1));
      }
      return false;
    }
    absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    if (flag == nullptr) return ParseNegated(name, has_value);
    if (has_value) {
      RETURN_IF_ERROR(Set(*flag, parts.second));
      return false;
    }
    if (flag->IsOfType<bool>()) {
      RETURN_IF_ERROR(Set(*flag, "true"));
      return false;
    }
    if (next == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("--", name, " needs a value: ", flag->Help()));
    }
    RETURN_IF_ERROR(Set(*flag, *next));
    return true;
  }

  absl::StatusOr<bool> ParseNegated(absl::string_view name, bool has_value) {
    absl::string_view positive = name;
    if (!has_value && absl::ConsumePrefix(&positive, "no")) {
      absl::CommandLineFlag* flag = absl::FindCommandLineFlag(positive);
      if (flag != nullptr && flag->IsOfType<bool>()) {
        RETURN_IF_ERROR(Set(*flag, "false"));
        return false;
      }
    }
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, " is not a flag of this program; --help lists them"));
  }

  absl::Status Set(absl::CommandLineFlag& flag, absl::string_view value) {
    std::string error;
    if (!flag.ParseFrom(value, &error)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", flag.Name(), "=", value, " cannot be read", " (this flag: ", flag.Help(), ")"));
    }
    result.given.insert(std::string(flag.Name()));
    return absl::OkStatus();
  }

  absl::Status ParseFlagFile(const std::string& path, int depth) {
    if (depth > kMaxFlagFileDepth) {
      return absl::InvalidArgumentError(absl::StrCat("--flagfile=", path, " is nested more than ",
                                                     kMaxFlagFileDepth, " deep; is it a cycle?"));
    }
    std::ifstream file(path);
    if (!file) {
      return absl::InvalidArgumentError(absl::StrCat("--flagfile=", path, " cannot be opened"));
    }
    std::vector<std::string> arguments;
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
      const absl::string_view text = absl::StripAsciiWhitespace(line);
      if (text.empty() || text[0] == '#') continue;
      if (!absl::StartsWith(text, "-") || text == "--") {
        return absl::InvalidArgumentError(
            absl::StrCat("--flagfile=", path, " line ", number, ": \"", text,
                         "\" is not a flag; write --name=value, or # for a comment"));
      }
      arguments.emplace_back(text);
    }
    return Parse(arguments, depth);
  }
};

// Appends `text` in lines of at most kHelpColumns.
void AppendWrapped(absl::string_view text, std::string* out) {
  size_t column = 0;
  for (absl::string_view word : absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty())) {
    if (column != 0 && column + 1 + word.size() > kHelpColumns) {
      out->push_back('\n');
      column = 0;
    }
    const std::string lead = column == 0 ? std::string(kHelpIndent, ' ') : " ";
    absl::StrAppend(out, lead, word);
    column += lead.size() + word.size();
  }
  out->push_back('\n');
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(absl::Span<const std::string> arguments) {
  Parser parser;
  RETURN_IF_ERROR(parser.Parse(arguments, 0));
  return std::move(parser.result);
}

std::string FormatHelp(absl::string_view usage, absl::Span<const FlagGroup> groups) {
  std::string help(usage);
  for (const FlagGroup& group : groups) {
    absl::StrAppend(&help, "\n", group.title, ":\n");
    for (const std::string& name : group.flags) {
      const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
      if (flag == nullptr) continue;
      const std::string value = flag->DefaultValue();
      absl::StrAppend(&help, "  --", name, value.empty() ? "" : "=", value, "\n");
      AppendWrapped(flag->Help(), &help);
    }
  }
  absl::StrAppend(&help, "\nGeneral:\n  --flagfile=PATH\n");
  AppendWrapped("Reads more flags from a file, one --name=value per line; # starts a comment.",
                &help);
  absl::StrAppend(&help, "  --help, --version\n");
  AppendWrapped("Print this text, or the version, and exit.", &help);
  return help;
}

}  // namespace lodestar
