// SPDX-License-Identifier: Apache-2.0

// The letters for bytes in vocabularies of byte-level BPE. Each of the 256 bytes has a printable
// letter, so that tokens can be written as text. Source: bytes_to_unicode() in encoder.py of
// github.com/openai/gpt-2.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace lodestar {

// Returns the UTF-8 of the byte's letter. If the byte is a printable character of Latin-1, that
// character is its letter. The other bytes have, in order, the letters U+0100, U+0101 and so on.
std::string LetterOfByte(uint8_t byte);

// Returns the bytes that `letters` stands for. Returns nullopt if `letters` has a character that is
// not one of the 256 letters.
std::optional<std::string> BytesOfLetters(absl::string_view letters);

}  // namespace lodestar
