#include "common/security/join_string.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/address_list.h"
#include "common/security/secret_file.h"
#include "common/status_macros.h"

namespace lodestar {
namespace {

constexpr absl::string_view kScheme = "lodestar://";
constexpr absl::string_view kForm =
    "lodestar://HOST:PORT/L1HASH.ID.SECRET, as `psctl token create` prints it";
constexpr int kMaxBytes = 4096;
constexpr int kHashDigits = 64;
constexpr int kMaxPartBytes = 128;

bool IsHexadecimal(absl::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isxdigit(c); });
}

absl::Status NotOfTheForm(absl::string_view what, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": no join string (", why, "); wanted is ", kForm));
}

}  // namespace

std::string JoinString::ToString() const {
  return absl::StrCat(kScheme, servers, "/L1", authority_sha256, ".", token_id, ".", secret);
}

absl::StatusOr<JoinString> ParseJoinString(absl::string_view what, absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  if (text.size() > kMaxBytes) return NotOfTheForm(what, "it is too long");
  if (!absl::ConsumePrefix(&text, kScheme)) return NotOfTheForm(what, "it begins otherwise");
  const std::vector<absl::string_view> halves = absl::StrSplit(text, '/');
  if (halves.size() != 2) return NotOfTheForm(what, "it has more or fewer parts");
  JoinString join;
  join.servers = std::string(halves[0]);
  if (!AddressList::Parse("join", join.servers).ok()) {
    return NotOfTheForm(what, "the address is none");
  }
  absl::string_view token = halves[1];
  if (!absl::ConsumePrefix(&token, "L1")) return NotOfTheForm(what, "it is of another version");
  const std::vector<absl::string_view> parts = absl::StrSplit(token, '.');
  if (parts.size() != 3 || parts[0].size() != kHashDigits) {
    return NotOfTheForm(what, "a part of it is missing or cut off");
  }
  for (const absl::string_view part : parts) {
    if (!IsHexadecimal(part) || part.size() > kMaxPartBytes) {
      return NotOfTheForm(what, "the hash, the id and the secret are hexadecimal");
    }
  }
  join.authority_sha256 = absl::AsciiStrToLower(parts[0]);
  join.token_id = std::string(parts[1]);
  join.secret = std::string(parts[2]);
  return join;
}

absl::StatusOr<JoinString> ReadJoinString(absl::string_view what, const std::string& value) {
  if (absl::StartsWith(value, kScheme)) return ParseJoinString(what, value);
  absl::StatusOr<std::string> text = ReadSecretFile(value, kMaxBytes);
  if (!text.ok() && !absl::IsNotFound(text.status())) {
    return absl::Status(text.status().code(), absl::StrCat(what, ": ", text.status().message()));
  }
  if (!text.ok()) {
    return absl::Status(text.status().code(),
                        absl::StrCat(what, " is no join string (", kForm,
                                     ") and no file with one: ", text.status().message()));
  }
  return ParseJoinString(absl::StrCat(what, "=", value), *text);
}

}  // namespace lodestar
