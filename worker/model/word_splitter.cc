// SPDX-License-Identifier: Apache-2.0

#include "worker/model/word_splitter.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/match.h"
#include "worker/model/unicode_classes.h"

namespace lodestar::model {
namespace {

constexpr absl::string_view kContractions[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};

struct Character {
  CharacterClass type;
  size_t num_bytes;
};

// Returns the first character of `text`, which must not be empty.
Character FrontOf(absl::string_view text) {
  const auto byte_at = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte_at(0);
  if (first < 0x80) return {ClassOf(first), 1};
  constexpr Character kInvalid = {CharacterClass::kOther, 1};
  const size_t num_bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < num_bytes) return kInvalid;
  char32_t character = first & (0xff >> (num_bytes + 1));
  for (size_t i = 1; i < num_bytes; ++i) {
    if ((byte_at(i) & 0xc0) != 0x80) return kInvalid;
    character = (character << 6) | (byte_at(i) & 0x3f);
  }
  // kLeast[n] is the smallest character that needs n bytes. A smaller character in n bytes is
  // invalid.
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (character < kLeast[num_bytes]) return kInvalid;
  return {ClassOf(character), num_bytes};
}

// Returns the length in bytes of the run of characters of `type` at the beginning of `text`.
size_t RunLength(absl::string_view text, CharacterClass type) {
  size_t length = 0;
  while (length < text.size()) {
    const Character next = FrontOf(text.substr(length));
    if (next.type != type) break;
    length += next.num_bytes;
  }
  return length;
}

// Returns how many bytes of white space at the beginning of `text` are one word:
// - If no other character follows, all white space is one word.
// - If another character follows, the last white-space character is excluded, because a space
//   belongs to the following word. If there is only one white-space character, it is not excluded.
size_t SpaceLength(absl::string_view text) {
  size_t length = 0;
  size_t before_last = 0;
  while (length < text.size()) {
    const Character next = FrontOf(text.substr(length));
    if (next.type != CharacterClass::kSpace) return before_last > 0 ? before_last : length;
    before_last = length;
    length += next.num_bytes;
  }
  return length;
}

size_t WordLength(absl::string_view text) {
  for (const absl::string_view contraction : kContractions) {
    if (absl::StartsWith(text, contraction)) return contraction.size();
  }
  const size_t space = text[0] == ' ' ? 1 : 0;
  if (space < text.size()) {
    const CharacterClass type = FrontOf(text.substr(space)).type;
    if (type != CharacterClass::kSpace) return space + RunLength(text.substr(space), type);
  }
  return SpaceLength(text);
}

}  // namespace

std::vector<absl::string_view> SplitIntoWords(absl::string_view text) {
  std::vector<absl::string_view> words;
  while (!text.empty()) {
    words.push_back(text.substr(0, WordLength(text)));
    text.remove_prefix(words.back().size());
  }
  return words;
}

}  // namespace lodestar::model
