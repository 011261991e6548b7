// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/local_path.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lodestar {
namespace {

// Returns the scheme, such as "s3" of s3://bucket or s3:/bucket and "nas" of nas:/export. Empty
// means that `path` has none. A single letter is not a scheme.
absl::string_view SchemeOf(absl::string_view path) {
  const size_t end = path.find(':');
  if (end == absl::string_view::npos || end < 2) return "";
  for (const char c : path.substr(0, end)) {
    if (!absl::ascii_isalnum(c) && c != '+' && c != '-' && c != '.' && c != '_') return "";
  }
  return absl::StartsWith(path.substr(end), ":/") ? path.substr(0, end) : "";
}

// Returns the position of the first $ that stands before a name, {NAME} or (NAME).
size_t FindVariable(absl::string_view path) {
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    const char next = path[i + 1];
    if (path[i] == '$' && (absl::ascii_isalpha(next) || next == '_' || next == '{' || next == '('))
      return i;
  }
  return absl::string_view::npos;
}

bool IsQuote(char c) { return c == '"' || c == '\'' || c == '`'; }

std::string WhatIsWrong(absl::string_view path) {
  if (path.empty()) return "";
  if (absl::ascii_isspace(path.front()) || absl::ascii_isspace(path.back())) {
    return "begins or ends with a blank or a line end; take it away";
  }
  if (IsQuote(path.front()) || IsQuote(path.back())) {
    return "begins or ends with a quote that no shell has taken away; give the path without quotes";
  }
  if (path == "~" || absl::StartsWith(path, "~/")) {
    return absl::StrCat(
        "names a folder called ~: shells put your home there only at the beginning of a word; "
        "write $HOME",
        path.substr(1));
  }
  if (FindVariable(path) != absl::string_view::npos) {
    return "has a variable that no shell has put a value in for; give the value itself";
  }
  const absl::string_view scheme = SchemeOf(path);
  if (scheme.empty()) return "";
  if (scheme == "file") return "is a URL; give the path behind file://";
  return absl::StrCat(
      "is on another machine or in a bucket, and only files and folders of this machine are "
      "written and read; give a path here (./",
      scheme,
      ":/... if that is its name). Checkpoints are copied elsewhere by ps_server "
      "--on_checkpoint=COMMAND, such as rclone, or by a mounted bucket");
}

}  // namespace

absl::Status CheckLocalPath(absl::string_view path) {
  const std::string wrong = WhatIsWrong(path);
  if (wrong.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the path [", path, "] ", wrong));
}

bool AbslParseFlag(absl::string_view text, LocalPath* path, std::string* error) {
  const absl::Status status = CheckLocalPath(text);
  if (!status.ok()) {
    *error = std::string(status.message());
    return false;
  }
  *path = LocalPath(std::string(text));
  return true;
}

std::string AbslUnparseFlag(const LocalPath& path) { return path; }

}  // namespace lodestar
