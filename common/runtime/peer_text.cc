// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/peer_text.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace lodestar {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0 means that the text is not UTF-8
};

// Reads the first character of `text`. As in RFC 3629, overlong forms, surrogates and code points
// above U+10FFFF are not UTF-8.
Character FirstOf(absl::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  uint32_t code = lead & (0x7f >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return {code, bytes};
}

// Returns true for controls (C0, DEL, C1), line and paragraph separators, and characters that
// change how the characters around them are shown.
bool IsDeceptive(uint32_t code) {
  constexpr struct {
    uint32_t first, last;
  } kRanges[] = {{0x00, 0x1f},     {0x7f, 0x9f},     {0x61c, 0x61c},   {0x200b, 0x200f},
                 {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xe0000, 0xe007f}};
  return std::any_of(std::begin(kRanges), std::end(kRanges), [code](const auto& range) {
    return range.first <= code && code <= range.last;
  });
}

void AppendEscaped(uint32_t code, std::string& out) {
  if (code == '\n') {
    absl::StrAppend(&out, "\\n");
  } else if (code == '\t') {
    absl::StrAppend(&out, "\\t");
  } else if (code < 0x80) {
    absl::StrAppendFormat(&out, "\\x%02x", code);
  } else {
    absl::StrAppendFormat(&out, "\\u%04x", code);
  }
}

}  // namespace

std::string PeerText(absl::string_view text, size_t max_bytes) {
  std::string out;
  size_t taken = 0;
  while (taken < text.size()) {
    const Character character = FirstOf(text.substr(taken));
    const size_t bytes = std::max<size_t>(character.bytes, 1);
    if (taken + bytes > max_bytes) return out + "...";
    if (character.bytes == 0) {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<uint8_t>(text[taken]));
    } else if (IsDeceptive(character.code)) {
      AppendEscaped(character.code, out);
    } else {
      absl::StrAppend(&out, text.substr(taken, bytes));
    }
    taken += bytes;
  }
  return out;
}

std::string PeerLines(absl::string_view text, size_t max_line_bytes) {
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    lines.push_back(PeerText(line, max_line_bytes));
  }
  return absl::StrJoin(lines, "\n");
}

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const Character character = FirstOf(text);
    if (character.bytes == 0) return false;
    text.remove_prefix(character.bytes);
  }
  return true;
}

}  // namespace lodestar
