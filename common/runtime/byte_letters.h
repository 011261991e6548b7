// The letters by which byte-level BPE writes bytes in its vocabularies: a printable character for
// each of the 256, so that tokens are texts. Source: bytes_to_unicode() in encoder.py of
// github.com/openai/gpt-2.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace lodestar {

// UTF-8 of the byte's letter: of one that prints in Latin-1 it is that character; the others, in
// order, are U+0100 and what follows.
std::string LetterOfByte(uint8_t byte);

// The bytes that a text of such letters stands for; nothing if another character is in it.
std::optional<std::string> BytesOfLetters(absl::string_view letters);

}  // namespace lodestar
