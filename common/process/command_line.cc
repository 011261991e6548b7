// SPDX-License-Identifier: Apache-2.0

#include "common/process/command_line.h"

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/marshalling.h"
#include "absl/flags/reflection.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/process/flag_file.h"
#include "common/runtime/flag_range.h"
#include "common/runtime/join_secret.h"
#include "common/runtime/local_path.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"
#include "common/runtime/suggestion.h"

namespace lodestar::process {
namespace {

constexpr size_t kHelpColumns = 80;
constexpr size_t kHelpIndent = 6;
// Maximum depth of flag files that name other flag files. Without a limit, a cycle would never end.
constexpr int kMaxFlagFileDepth = 8;

// Returns text that says which values a flag of the type Int takes. The flag's own range may be
// smaller than the range of its type, and is in the flag's help.
template <typename Int>
std::string WholeNumber(absl::string_view value) {
  double number = 0.0;
  if (!absl::SimpleAtod(value, &number) || number != std::floor(number)) return "a whole number";
  // From here on `value` is a number, such as 1e4. A double holds every whole number up to 2^53
  // exactly.
  constexpr double kExact = int64_t{1} << 53;
  const bool fits = number >= static_cast<double>(std::numeric_limits<Int>::min()) &&
                    number <= static_cast<double>(std::numeric_limits<Int>::max());
  if (!fits || std::abs(number) > kExact) {
    return absl::StrCat("a whole number in digits, from ", std::numeric_limits<Int>::min(), " to ",
                        std::numeric_limits<Int>::max());
  }
  return absl::StrCat("a whole number; write it with digits only: ", static_cast<int64_t>(number));
}

std::string WhatItTakes(OwnFlag::Type type, absl::string_view value) {
  switch (type) {
    case OwnFlag::Type::kBool:
      return "true or false";
    case OwnFlag::Type::kInt32:
      return WholeNumber<int32_t>(value);
    case OwnFlag::Type::kInt64:
      return WholeNumber<int64_t>(value);
    case OwnFlag::Type::kUint64:
      return WholeNumber<uint64_t>(value);
    case OwnFlag::Type::kDouble:
      return "a number";
    case OwnFlag::Type::kText:
      return "a value that this flag accepts";
  }
  return "a value that this flag accepts";
}

// Reads `text` as Abseil's flags of this type do. Returns its normal form, or nullopt if it cannot
// be read.
template <typename Value>
std::optional<std::string> Normalized(absl::string_view text) {
  Value value = {};
  std::string error;
  if (!absl::ParseFlag(text, &value, &error)) return std::nullopt;
  return absl::UnparseFlag(value);
}

std::optional<std::string> Normalized(OwnFlag::Type type, absl::string_view text) {
  double number = 0.0;
  switch (type) {
    case OwnFlag::Type::kBool:
      return Normalized<bool>(text);
    case OwnFlag::Type::kInt32:
      return Normalized<int32_t>(text);
    case OwnFlag::Type::kInt64:
      return Normalized<int64_t>(text);
    case OwnFlag::Type::kUint64:
      return Normalized<uint64_t>(text);
    case OwnFlag::Type::kDouble:
      // UnparseFlag() would round the number.
      if (!absl::SimpleAtod(text, &number)) return std::nullopt;
      return std::string(absl::StripAsciiWhitespace(text));
    case OwnFlag::Type::kText:
      return std::string(text);
  }
  return std::nullopt;
}

// A flag that is registered with Abseil, or an OwnFlag.
class AnyFlag {
 public:
  explicit AnyFlag(absl::CommandLineFlag& flag) : registered_(&flag) {}
  explicit AnyFlag(const OwnFlag& flag) : own_(&flag) {}

  const OwnFlag* own() const { return own_; }
  absl::CommandLineFlag& registered() const { return *registered_; }
  std::string name() const {
    return own_ != nullptr ? own_->name : std::string(registered_->Name());
  }
  std::string help() const { return own_ != nullptr ? own_->help : registered_->Help(); }
  std::string default_text() const {
    return own_ != nullptr ? own_->default_text : registered_->DefaultValue();
  }
  // Returns true if --NAME without a value means true.
  bool is_switch() const { return type() == OwnFlag::Type::kBool; }
  bool is_double() const { return type() == OwnFlag::Type::kDouble; }
  bool is_path() const { return own_ == nullptr && registered_->IsOfType<LocalPath>(); }
  std::string WhatItTakes(absl::string_view value) const {
    if (own_ == nullptr && registered_->IsOfType<absl::Duration>()) {
      return "a duration such as 10s or 1m30s";
    }
    const bool takes_auto = own_ != nullptr && own_->takes_auto;
    return absl::StrCat(process::WhatItTakes(type(), value), takes_auto ? ", or auto" : "");
  }

 private:
  // Returns the type. kText also stands for all types that OwnFlag does not list.
  OwnFlag::Type type() const {
    if (own_ != nullptr) return own_->type;
    if (registered_->IsOfType<bool>()) return OwnFlag::Type::kBool;
    if (registered_->IsOfType<int32_t>()) return OwnFlag::Type::kInt32;
    if (registered_->IsOfType<int64_t>()) return OwnFlag::Type::kInt64;
    if (registered_->IsOfType<uint64_t>()) return OwnFlag::Type::kUint64;
    if (registered_->IsOfType<double>()) return OwnFlag::Type::kDouble;
    return OwnFlag::Type::kText;
  }

  absl::CommandLineFlag* registered_ = nullptr;
  const OwnFlag* own_ = nullptr;
};

std::optional<AnyFlag> FindFlag(absl::string_view name, absl::Span<const OwnFlag> own) {
  for (const OwnFlag& flag : own) {
    if (flag.name == name) return AnyFlag(flag);
  }
  absl::CommandLineFlag* const registered = absl::FindCommandLineFlag(name);
  return registered == nullptr ? std::nullopt : std::optional(AnyFlag(*registered));
}

// Returns a hint if the refused text has a no-break space, which looks like an ordinary blank.
// Empty means that the text has none.
absl::string_view NoBreakSpaceHint(absl::string_view text) {
  return absl::StrContains(text, "\xc2\xa0")
             ? "; it contains a no-break space (U+00A0), which must be an ordinary space"
             : "";
}

std::vector<std::string> FlagNames(absl::Span<const OwnFlag> own) {
  std::vector<std::string> names;
  for (const OwnFlag& flag : own) names.push_back(flag.name);
  for (const auto& [name, flag] : absl::GetAllFlags()) names.emplace_back(name);
  return names;
}

class Parser {
 public:
  explicit Parser(absl::Span<const OwnFlag> own) : own_(own) {}

  absl::Status Parse(absl::Span<const std::string> arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      const std::string& argument = arguments[i];
      if (argument == "--") {
        result.passed_on.assign(arguments.begin() + i + 1, arguments.end());
        break;
      }
      if (argument.size() < 2 || argument[0] != '-') {
        result.positionals.push_back(argument);
        continue;
      }
      const bool has_next = i + 1 < arguments.size();
      ASSIGN_OR_RETURN(const bool used_next,
                       ParseFlag(argument, has_next ? &arguments[i + 1] : nullptr, /*depth=*/0));
      if (used_next) ++i;
    }
    NoteEmptyValues();
    return absl::OkStatus();
  }

  CommandLine result;

 private:
  const absl::Span<const OwnFlag> own_;
  // Last value of each flag on the command line, by the flag's name. Flag files are not included.
  std::map<std::string, std::string> on_command_line_;

  // Sets the flag that `argument` names. `next` is the argument after it, or null. Returns true if
  // `next` is the flag's value. `depth` is the number of flag files that the argument is nested in,
  // 0 on the command line.
  absl::StatusOr<bool> ParseFlag(absl::string_view argument, const std::string* next, int depth) {
    const absl::string_view as_given = argument.substr(0, argument.find('='));
    absl::ConsumePrefix(&argument, "-");
    absl::ConsumePrefix(&argument, "-");
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(argument, absl::MaxSplits('=', 1));
    const absl::string_view name = parts.first;
    const bool has_value = name.size() != argument.size();
    if (!has_value && (name == "help" || name == "h")) {
      result.request = CommandLineRequest::kHelp;
      return false;
    }
    if (!has_value && name == "helpfull") {
      result.request = CommandLineRequest::kHelpFull;
      return false;
    }
    if (!has_value && name == "version") {
      result.request = CommandLineRequest::kVersion;
      return false;
    }
    const std::optional<AnyFlag> flag = FindFlag(name, own_);
    const bool is_flag_file = name == "flagfile";
    if (!flag.has_value() && !is_flag_file) return ParseNegated(as_given, name, has_value);
    if (flag.has_value() && !has_value && flag->is_switch()) {
      RETURN_IF_ERROR(Set(*flag, "true"));
      return false;
    }
    if (!has_value && next == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", name,
          " needs a value: ", is_flag_file ? "the path of a file with flags" : flag->help()));
    }
    const absl::string_view value = has_value ? parts.second : absl::string_view(*next);
    RETURN_IF_ERROR(is_flag_file ? ParseFlagFiles(value, depth) : Set(*flag, value));
    if (!is_flag_file && depth == 0) NoteRepetition(*flag, value);
    return !has_value;
  }

  void NoteRepetition(const AnyFlag& flag, absl::string_view value) {
    const auto [first, is_new] = on_command_line_.emplace(flag.name(), std::string(value));
    if (is_new) return;
    const std::string before = std::exchange(first->second, std::string(value));
    if (before == value || flag.name() == "join") return;
    result.doubts.push_back(absl::StrCat("--", flag.name(), " is given twice, as ", before,
                                         " and as ", value, ". The last value, ", value,
                                         ", is used"));
  }

  // Adds a message to `doubts` if flags are given an empty value. For example, a variable that is
  // not set leaves a flag empty.
  void NoteEmptyValues() {
    std::vector<std::string> empty;
    for (const std::string& name : result.given) {
      const std::optional<AnyFlag> flag = FindFlag(name, own_);
      const bool has_text = flag->own() != nullptr ? !result.own[name].empty()
                                                   : !flag->registered().CurrentValue().empty();
      if (!has_text && flag->default_text().empty()) empty.push_back(absl::StrCat("--", name));
    }
    if (empty.empty()) return;
    result.doubts.push_back(
        absl::StrCat("the value of ", absl::StrJoin(empty, ", "),
                     " is empty, which means the same as leaving the flag out. Give a value, and "
                     "check whether a shell variable is not set"));
  }

  absl::StatusOr<bool> ParseNegated(absl::string_view as_given, absl::string_view name,
                                    bool has_value) {
    absl::string_view positive = name;
    if (!has_value && absl::ConsumePrefix(&positive, "no")) {
      const std::optional<AnyFlag> flag = FindFlag(positive, own_);
      if (flag.has_value() && flag->is_switch()) {
        RETURN_IF_ERROR(Set(*flag, "false"));
        return false;
      }
    }
    const std::string hint = FlagHint(name, FlagNames(own_));
    return absl::InvalidArgumentError(
        absl::StrCat(as_given, " is not a flag of this program", NoBreakSpaceHint(name), "; ",
                     hint.empty() ? "--helpfull lists them" : hint,
                     absl::StartsWith(as_given, "--")
                         ? ""
                         : "; if it is an argument and not a flag, put -- before it"));
  }

  absl::Status Set(const AnyFlag& flag, absl::string_view value) {
    const std::string name = absl::StrCat("--", flag.name());
    if (flag.is_path()) {
      if (const absl::Status path = CheckLocalPath(value); !path.ok()) {
        return absl::InvalidArgumentError(absl::StrCat(name, ": ", path.message()));
      }
    }
    if (!Take(flag, value)) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, "=", value, " is not ", flag.WhatItTakes(value),
                       NoBreakSpaceHint(value), " (this flag: ", flag.help(), ")"));
    }
    if (double number = 0.0; flag.is_double() && absl::SimpleAtod(value, &number)) {
      RETURN_IF_ERROR(CheckNotTooSmall(name, value, number));
    }
    result.given.insert(flag.name());
    return absl::OkStatus();
  }

  // Sets the flag to `value`. Returns false if the flag does not take `value`.
  bool Take(const AnyFlag& flag, absl::string_view value) {
    if (flag.own() == nullptr) {
      std::string error;
      return flag.registered().ParseFrom(value, &error);
    }
    const bool is_auto = flag.own()->takes_auto && value == kAutoText;
    std::optional<std::string> text =
        is_auto ? std::string(kAutoText) : Normalized(flag.own()->type, value);
    if (!text.has_value()) return false;
    result.own[flag.own()->name] = *std::move(text);
    return true;
  }

  // `paths` are separated by commas.
  absl::Status ParseFlagFiles(absl::string_view paths, int depth) {
    for (absl::string_view path : absl::StrSplit(paths, ',')) {
      if (const absl::Status local = CheckLocalPath(path); !local.ok()) {
        return absl::InvalidArgumentError(absl::StrCat("--flagfile: ", local.message()));
      }
      RETURN_IF_ERROR(ParseFlagFile(std::string(path), depth + 1));
    }
    return absl::OkStatus();
  }

  absl::Status ParseFlagFile(const std::string& path, int depth) {
    if (depth > kMaxFlagFileDepth) {
      return absl::InvalidArgumentError(absl::StrCat("--flagfile=", path, " is nested more than ",
                                                     kMaxFlagFileDepth,
                                                     " files deep; check whether a flag file has a "
                                                     "--flagfile line that leads back to itself"));
    }
    const absl::StatusOr<std::vector<FlagFileLine>> lines = ReadFlagFile(path);
    if (!lines.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--flagfile: ", lines.status().message()));
    }
    for (const FlagFileLine& line : *lines) {
      const absl::Status set = ParseFlag(line.argument, /*next=*/nullptr, depth).status();
      if (!set.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, " line ", line.number, ": ", set.message()));
      }
    }
    return absl::OkStatus();
  }
};

absl::string_view FirstSentence(absl::string_view text) {
  const size_t end = text.find(". ");
  return end == text.npos ? text : text.substr(0, end + 1);
}

// Appends `text`, broken into lines of at most kHelpColumns.
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

// Appends the flag's name and default, and `text`, which describes the flag.
void AppendFlag(const AnyFlag& flag, absl::string_view text, std::string* out) {
  const std::string value = flag.default_text();
  absl::StrAppend(out, "  --", flag.name(), value.empty() ? "" : "=", value, "\n");
  AppendWrapped(text, out);
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(absl::Span<const std::string> arguments,
                                             absl::Span<const OwnFlag> own) {
  for (const std::string& argument : arguments) {
    if (IsUtf8(argument)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("\"", PeerText(argument, argument.size()),
                     "\" has bytes that are not UTF-8; give a name or text in UTF-8"));
  }
  Parser parser(own);
  RETURN_IF_ERROR(parser.Parse(arguments));
  return std::move(parser.result);
}

absl::Status StrayJoinString(absl::string_view word) {
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", WithoutJoinSecrets(word),
      "\" is a join string without a flag; give it with --join=... or in $LODESTAR_JOIN"));
}

absl::Status CheckOnlyFlags(const CommandLine& line) {
  for (const std::vector<std::string>* words : {&line.positionals, &line.passed_on}) {
    if (words->empty()) continue;
    if (HasJoinString(words->front())) return StrayJoinString(words->front());
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", words->front(), "\" is not a flag; write every setting as --name=value, see --help"));
  }
  return absl::OkStatus();
}

std::string FormatShortHelp(absl::string_view usage, absl::Span<const absl::string_view> flags,
                            absl::Span<const OwnFlag> own) {
  std::string help = absl::StrCat(usage, "\nMost used flags:\n");
  for (const absl::string_view name : flags) {
    if (const std::optional<AnyFlag> flag = FindFlag(name, own); flag.has_value()) {
      AppendFlag(*flag, FirstSentence(flag->help()), &help);
    }
  }
  absl::StrAppend(&help, "\n--helpfull prints all flags with their full explanation.\n");
  return help;
}

std::string FormatHelp(absl::string_view usage, absl::Span<const FlagGroup> groups,
                       absl::Span<const OwnFlag> own) {
  std::string help(usage);
  for (const FlagGroup& group : groups) {
    absl::StrAppend(&help, "\n", group.title, ":\n");
    for (const std::string& name : group.flags) {
      if (const std::optional<AnyFlag> flag = FindFlag(name, own); flag.has_value()) {
        AppendFlag(*flag, flag->help(), &help);
      }
    }
  }
  absl::StrAppend(&help, "\nGeneral:\n  --flagfile=PATH\n");
  AppendWrapped(
      "Reads more flags from a file, one --name=value per line. # begins a comment; put a value "
      "that contains # into double quotes.",
      &help);
  absl::StrAppend(&help, "  -h, --help, --helpfull, --version\n");
  AppendWrapped("Print a short help, this text, or the version, and exit.", &help);
  return help;
}

}  // namespace lodestar::process
