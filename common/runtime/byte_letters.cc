// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/byte_letters.h"

#include <array>

namespace lodestar {
namespace {

constexpr int kBytes = 256;
// A limit above the code points of all letters.
constexpr int kLetters = 0x200;

bool PrintsInLatin1(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

// Value in the table of MakeBytes() for a code point that is not the letter of any byte.
// MakeLetters() returns the code point of each byte's letter.
constexpr int kNone = -1;
std::array<int, kBytes> MakeLetters() {
  std::array<int, kBytes> letters;
  int next = kBytes;
  for (int byte = 0; byte < kBytes; ++byte) {
    letters[byte] = PrintsInLatin1(byte) ? byte : next++;
  }
  return letters;
}

const std::array<int, kBytes>& Letters() {
  static const std::array<int, kBytes> letters = MakeLetters();
  return letters;
}

std::array<int, kLetters> MakeBytes() {
  std::array<int, kLetters> bytes;
  bytes.fill(kNone);
  for (int byte = 0; byte < kBytes; ++byte) bytes[Letters()[byte]] = byte;
  return bytes;
}

}  // namespace

std::string LetterOfByte(uint8_t byte) {
  const int letter = Letters()[byte];
  if (letter < 0x80) return std::string(1, static_cast<char>(letter));
  return {static_cast<char>(0xc0 | (letter >> 6)), static_cast<char>(0x80 | (letter & 0x3f))};
}

std::optional<std::string> BytesOfLetters(absl::string_view letters) {
  static const std::array<int, kLetters> bytes = MakeBytes();
  std::string text;
  for (size_t i = 0; i < letters.size(); ++i) {
    int letter = static_cast<uint8_t>(letters[i]);
    if (letter >= 0x80) {
      // A letter takes one or two bytes of UTF-8.
      if ((letter & 0xe0) != 0xc0 || i + 1 == letters.size()) return std::nullopt;
      const int rest = static_cast<uint8_t>(letters[++i]);
      if ((rest & 0xc0) != 0x80) return std::nullopt;
      letter = ((letter & 0x1f) << 6) | (rest & 0x3f);
    }
    if (letter >= kLetters || bytes[letter] == kNone) return std::nullopt;
    text.push_back(static_cast<char>(bytes[letter]));
  }
  return text;
}

}  // namespace lodestar
