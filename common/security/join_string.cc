// SPDX-License-Identifier: Apache-2.0

#include "common/security/join_string.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/net/address_list.h"
#include "common/runtime/join_secret.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"
#include "common/security/secret_file.h"

namespace lodestar::security {
namespace {

constexpr absl::string_view kScheme = "lodestar://";
constexpr absl::string_view kForm =
    "lodestar://HOST:PORT/L1HASH.ID.SECRET, as `psctl token create` prints it";
constexpr int kMaxBytes = 4096;
constexpr int kHashDigits = 64;
constexpr int kMaxPartBytes = 128;

// Returns the first UTF-8 character of `text`. Requires: `text` is not empty.
absl::string_view FirstCharacter(absl::string_view text) {
  size_t bytes = 1;
  while (bytes < text.size() && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) ++bytes;
  return text.substr(0, bytes);
}

// Returns the first character of `token` that is not allowed in a token. Empty means that all are
// allowed.
absl::string_view FirstForeignCharacter(absl::string_view token) {
  const auto* const foreign = std::find_if(
      token.begin(), token.end(), [](char c) { return c != '.' && !absl::ascii_isxdigit(c); });
  return foreign == token.end() ? "" : FirstCharacter(token.substr(foreign - token.begin()));
}

// Returns the UTF-8 character `character` as text that is safe to show on a terminal.
std::string Quoted(absl::string_view character) {
  if (character == " ") return "a space";
  return absl::StrCat("'", PeerText(character, character.size()), "'");
}

// Returns the text without the characters that files, shells and container runtimes put around it:
// white space, a byte order mark, quotes, and the name of the variable or flag in front of it.
absl::string_view Bare(absl::string_view text) {
  for (size_t before = text.size() + 1; before != text.size();) {
    before = text.size();
    text = absl::StripAsciiWhitespace(text);
    absl::ConsumePrefix(&text, kByteOrderMark);
    for (const absl::string_view name : {"export ", "LODESTAR_JOIN=", "--join=", "--join "}) {
      absl::ConsumePrefix(&text, name);
    }
    for (const absl::string_view quote : {"\"", "'", "`"}) {
      absl::ConsumePrefix(&text, quote);
      absl::ConsumeSuffix(&text, quote);
    }
  }
  return text;
}

absl::Status NotOfTheForm(absl::string_view what, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": not a join string (", why, "); it must be ", kForm));
}

}  // namespace

std::string JoinString::ToString() const {
  return absl::StrCat(kScheme, servers, "/L1", authority_sha256, ".", token_id, ".", secret);
}

absl::StatusOr<JoinString> ParseJoinString(absl::string_view what, absl::string_view text) {
  text = Bare(text);
  if (text.empty()) return NotOfTheForm(what, "it is empty");
  if (text.size() > kMaxBytes) return NotOfTheForm(what, "it is too long");
  if (absl::StartsWith(text, kJoinStringInBase64)) {
    return NotOfTheForm(what, "it is a join string in base64; decode it with base64 -d");
  }
  if (!absl::ConsumePrefix(&text, kScheme)) {
    const size_t scheme = text.find(kScheme);
    return NotOfTheForm(
        what,
        scheme == absl::string_view::npos
            ? "it does not begin with lodestar://; a file with a join string must be UTF-8 text"
            : absl::StrCat("before lodestar:// there are ", scheme, " other bytes, beginning with ",
                           Quoted(FirstCharacter(text))));
  }
  const std::vector<absl::string_view> halves = absl::StrSplit(text, '/');
  if (halves.size() != 2)
    return NotOfTheForm(what, "it must have exactly one '/' after lodestar://");
  JoinString join;
  join.servers = std::string(halves[0]);
  if (!net::AddressList::Parse("join", join.servers).ok()) {
    return NotOfTheForm(what, "its address is not HOST:PORT");
  }
  absl::string_view token = halves[1];
  if (!absl::ConsumePrefix(&token, "L1"))
    return NotOfTheForm(what,
                        "another version of Lodestar made it; make a new one with this version's "
                        "psctl token create");
  if (const absl::string_view foreign = FirstForeignCharacter(token); !foreign.empty()) {
    return NotOfTheForm(what, absl::StrCat("character ", foreign.data() - token.data() + 3,
                                           " after the address is ", Quoted(foreign),
                                           ", but only hexadecimal digits and '.' may be there"));
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(token, '.');
  if (parts.size() != 3 || parts[0].size() != kHashDigits) {
    return NotOfTheForm(what, "a part of it is missing or cut off; copy it again");
  }
  for (const absl::string_view part : parts) {
    if (part.empty() || part.size() > kMaxPartBytes) {
      return NotOfTheForm(what, "the hash, the id or the secret is empty or too long");
    }
  }
  join.authority_sha256 = absl::AsciiStrToLower(parts[0]);
  join.token_id = std::string(parts[1]);
  join.secret = std::string(parts[2]);
  return join;
}

absl::StatusOr<JoinString> ReadJoinString(absl::string_view what, const std::string& value) {
  if (HasJoinString(value) || Bare(value).empty()) return ParseJoinString(what, value);
  absl::StatusOr<std::string> text = ReadSecretFile(value, kMaxBytes);
  if (!text.ok() && !absl::IsNotFound(text.status())) {
    return absl::Status(text.status().code(), absl::StrCat(what, ": ", text.status().message()));
  }
  if (!text.ok()) {
    return absl::Status(text.status().code(),
                        absl::StrCat(what, " is neither a join string (", kForm,
                                     ") nor a file with a join string: ", text.status().message()));
  }
  return ParseJoinString(absl::StrCat(what, "=", value), *text);
}

}  // namespace lodestar::security
