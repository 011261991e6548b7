// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/worker_name.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace lodestar {
namespace {

bool IsNameCharacter(char c) { return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-'; }

// Returns an error if `fault` is not empty or the size of `name` is wrong. `fault` says what is
// wrong with the characters of `name`. Empty means that all characters are right.
absl::Status CheckNameSize(absl::string_view what, absl::string_view name, size_t max_bytes,
                           absl::string_view fault) {
  if (fault.empty() && !name.empty() && name.size() <= max_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      what, ": the name has ", name.size(), " bytes", fault, "; allowed are 1 to ", max_bytes,
      " letters, digits, '.', '_' and '-', of which the first is a letter or digit"));
}

absl::string_view CharacterFault(absl::string_view name) {
  return std::all_of(name.begin(), name.end(), IsNameCharacter)
             ? ""
             : " and a character that is not allowed";
}

}  // namespace

absl::Status CheckName(absl::string_view what, absl::string_view name, size_t max_bytes) {
  absl::string_view fault = CharacterFault(name);
  if (fault.empty() && !name.empty() && !absl::ascii_isalnum(name.front())) {
    fault = " and begins with '.', '_' or '-'";
  }
  return CheckNameSize(what, name, max_bytes, fault);
}

absl::Status CheckWorkerName(absl::string_view what, absl::string_view name) {
  return CheckName(what, name, kMaxWorkerNameBytes);
}

absl::Status CheckRecordedName(absl::string_view what, absl::string_view name, size_t max_bytes) {
  return CheckNameSize(what, name, max_bytes, CharacterFault(name));
}

std::string NearestName(absl::string_view text, size_t max_bytes) {
  std::string name(text);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !IsNameCharacter(c); }, '-');
  name.erase(name.begin(), std::find_if(name.begin(), name.end(), absl::ascii_isalnum));
  return name.substr(0, max_bytes);
}

}  // namespace lodestar
