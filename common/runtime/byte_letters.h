// SPDX-License-Identifier: Apache-2.0

// The letters with which byte-level BPE writes bytes in its vocabularies: each of the 256 bytes has
// a printable character, so that tokens are texts. Source: bytes_to_unicode() in encoder.py of
// github.com/openai/gpt-2.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace lodestar {

// Returns the UTF-8 of the byte's letter. A byte that prints in Latin-1 has that character as its
// letter. The letters of the other bytes, in order, are U+0100, U+0101 and so on.
std::string LetterOfByte(uint8_t byte);

// Returns the bytes that the letters in `text` stand for. Returns nullopt if `text` has a character
// that is not one of the 256 letters.
std::optional<std::string> BytesOfLetters(absl::string_view letters);

}  // namespace lodestar
