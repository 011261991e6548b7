// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/join_secret.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lodestar {
namespace {

constexpr absl::string_view kScheme = "lodestar:";
constexpr absl::string_view kTokenVersion = "L1";
// Minimum number of hexadecimal digits behind kTokenVersion. With fewer digits a text is not taken
// for the hash of an authority.
constexpr size_t kLeastHashDigits = 16;
// Minimum number of hexadecimal digits of ID and of SECRET in "ID.SECRET". With fewer digits a text
// is not taken for "ID.SECRET". Real secrets have 40.
constexpr size_t kLeastIdDigits = 8;
constexpr size_t kLeastSecretDigits = 32;

size_t HexDigitsAt(absl::string_view text, size_t position) {
  size_t end = position;
  while (end < text.size() && absl::ascii_isxdigit(text[end])) ++end;
  return end - position;
}

bool EndsWord(char c) { return absl::ascii_isspace(c) || c == '"' || c == '\'' || c == '`'; }

bool IsSchemeAt(absl::string_view text, size_t position) {
  return absl::StartsWithIgnoreCase(text.substr(position), kScheme) &&
         text.substr(position + kScheme.size(), 1) == "/";
}

bool IsTokenAt(absl::string_view text, size_t position) {
  if (absl::StartsWith(text.substr(position), kJoinStringInBase64)) return true;
  if (absl::StartsWith(text.substr(position), kTokenVersion) &&
      HexDigitsAt(text, position + kTokenVersion.size()) >= kLeastHashDigits) {
    return true;
  }
  if (position > 0 && absl::ascii_isxdigit(text[position - 1])) return false;
  const size_t id_digits = HexDigitsAt(text, position);
  const size_t point = position + id_digits;
  return id_digits >= kLeastIdDigits && point < text.size() && text[point] == '.' &&
         HexDigitsAt(text, point + 1) >= kLeastSecretDigits;
}

bool IsOfHost(char c) { return absl::ascii_isalnum(c) || absl::StrContains(".-_:[]%,", c); }

// Returns the position behind the scheme and the host of the join string at `position`.
size_t EndOfHost(absl::string_view text, size_t position) {
  size_t end = position + kScheme.size();
  while (end < text.size() && text[end] == '/') ++end;
  while (end < text.size() && IsOfHost(text[end]) && !IsTokenAt(text, end)) ++end;
  return end;
}

}  // namespace

bool HasJoinString(absl::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsSchemeAt(text, i) || IsTokenAt(text, i)) return true;
  }
  return false;
}

std::string WithoutJoinSecrets(absl::string_view text) {
  std::string out;
  size_t kept_from = 0;
  size_t position = 0;
  while (position < text.size()) {
    const bool is_scheme = IsSchemeAt(text, position);
    if (!is_scheme && !IsTokenAt(text, position)) {
      ++position;
      continue;
    }
    size_t secret = is_scheme ? EndOfHost(text, position) : position;
    if (is_scheme && secret < text.size() && text[secret] == '/') ++secret;
    const auto* const end = std::find_if(text.begin() + secret, text.end(), EndsWord);
    position = end - text.begin();
    if (secret == position) continue;
    absl::StrAppend(&out, text.substr(kept_from, secret - kept_from), "...");
    kept_from = position;
  }
  absl::StrAppend(&out, text.substr(kept_from));
  return out;
}

}  // namespace lodestar
