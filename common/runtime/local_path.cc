// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/local_path.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lodestar {
namespace {

// Returns the scheme or machine, such as "s3" of s3://bucket or s3:/bucket, "nas" of nas:/export,
// and "ann@nas" of ann@nas:backups. Empty means that `path` has none. A single letter is neither.
absl::string_view PlaceOf(absl::string_view path) {
  const size_t end = path.find(':');
  if (end == absl::string_view::npos || end < 2) return "";
  const absl::string_view place = path.substr(0, end);
  for (const char c : place) {
    if (!absl::ascii_isalnum(c) && !absl::StrContains("+-._@", c)) return "";
  }
  const bool has_user = absl::StrContains(place, '@');
  return has_user || absl::StartsWith(path.substr(end), ":/") ? place : "";
}

// Returns the position of the first $ that is followed by a name, {NAME} or (NAME).
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
    return "begins or ends with a space or a line end; remove it";
  }
  if (IsQuote(path.front()) || IsQuote(path.back())) {
    return "begins or ends with a quote; give the path without quotes";
  }
  if (path == "~" || absl::StartsWith(path, "~/")) {
    return absl::StrCat(
        "begins with ~, which the shell has not replaced by your home folder; write $HOME",
        path.substr(1));
  }
  if (FindVariable(path) != absl::string_view::npos) {
    return "has a variable that no shell has replaced by its value; write the value itself";
  }
  const absl::string_view place = PlaceOf(path);
  if (place.empty()) return "";
  if (place == "file") return "is a URL; give only the path after file://";
  return absl::StrCat(
      "is on another machine or in a bucket, and Lodestar uses only files and folders of this "
      "machine. Give a path on this machine (./",
      path,
      " if it has that name). To copy checkpoints elsewhere, use ps_server "
      "--on_checkpoint=COMMAND, for example with rclone, or mount the bucket");
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
