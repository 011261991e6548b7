// SPDX-License-Identifier: Apache-2.0

#include "common/process/flag_file.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/runtime/file_io.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"

namespace lodestar::process {
namespace {

constexpr int64_t kMaxBytes = 1 << 20;  // a longer file was named by mistake
constexpr absl::string_view kNoBreakSpace = "\xc2\xa0";

// Returns `text` before its comment, without blanks at the ends.
absl::string_view WithoutComment(absl::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '#' && (i == 0 || absl::ascii_isspace(text[i - 1]))) {
      text = text.substr(0, i);
      break;
    }
  }
  return absl::StripAsciiWhitespace(text);
}

// Returns the content of the double quotes that `text` begins with.
absl::StatusOr<std::string> Unquoted(absl::string_view text) {
  const size_t end = text.find('"', 1);
  if (end == absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("the quote in ", PeerText(text),
                                                   " is not closed; add the second double quote"));
  }
  if (!WithoutComment(text.substr(end + 1)).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(PeerText(text),
                     " has text after its closing quote; put the whole value between the quotes"));
  }
  return std::string(text.substr(1, end - 1));
}

// Returns `line` as an argument of a command line. `line` begins with a dash and has no blanks at
// its ends.
absl::StatusOr<std::string> ArgumentOf(absl::string_view line) {
  const size_t name_end = line.find_first_of("= \t");
  const absl::string_view name = line.substr(0, name_end);
  if (name_end == absl::string_view::npos) return std::string(name);
  // In "--name = value" the blanks around the sign do not belong to the value.
  const size_t sign = line.find_first_not_of(" \t", name_end);
  const size_t value_begin = (line[sign] == '=' ? sign : name_end) + 1;
  const absl::string_view rest = absl::StripLeadingAsciiWhitespace(line.substr(value_begin));
  if (absl::StartsWith(rest, "\"")) {
    ASSIGN_OR_RETURN(const std::string value, Unquoted(rest));
    return absl::StrCat(name, "=", value);
  }
  // WithoutComment() gets the whole line, because a # begins a comment only after a blank.
  const absl::string_view text = WithoutComment(line);
  if (text.size() <= name_end) return std::string(name);
  return absl::StrCat(
      name, "=",
      absl::StripLeadingAsciiWhitespace(text.substr(std::min(value_begin, text.size()))));
}

}  // namespace

absl::StatusOr<std::vector<FlagFileLine>> ReadFlagFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string contents, ReadWholeFile(path, kMaxBytes));
  if (absl::StartsWith(contents, "\xff\xfe") || absl::StartsWith(contents, "\xfe\xff")) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is UTF-16; save it as UTF-8"));
  }
  absl::string_view text = contents;
  absl::ConsumePrefix(&text, kByteOrderMark);
  std::vector<FlagFileLine> lines;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (const size_t zero = line.find('\0'); zero != absl::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " line ", number, ": byte ", zero + 1,
                       " is zero, so the file is not text; save it as UTF-8 text"));
    }
    line = absl::StripAsciiWhitespace(line);
    // Word processors replace blanks with no-break spaces, which look the same.
    if (!line.empty() && line[0] != '#' &&
        line.substr(0, line.find('=')).find(kNoBreakSpace) != absl::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " line ", number,
                       ": there is a no-break space (U+00A0) before the flag's value; write an "
                       "ordinary space, or no space"));
    }
    if (line.empty() || line[0] == '#') continue;
    absl::StatusOr<std::string> argument =
        absl::InvalidArgumentError(absl::StrCat("\"", PeerText(line),
                                                "\" is not a flag; write --name=value, or # for a "
                                                "comment"));
    if (line[0] == '-' && WithoutComment(line) != "--") argument = ArgumentOf(line);
    if (!argument.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " line ", number, ": ", argument.status().message()));
    }
    lines.push_back({number, *std::move(argument)});
  }
  return lines;
}

}  // namespace lodestar::process
