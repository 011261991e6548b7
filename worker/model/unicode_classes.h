// SPDX-License-Identifier: Apache-2.0

// Distinguishes letters, numbers and white space of Unicode 16, as GPT-2's pattern for words does.
#pragma once

namespace lodestar::model {

enum class CharacterClass {
  kLetter,  // \p{L}
  kNumber,  // \p{N}
  kSpace,   // \s
  kOther,   // Also for bytes that are not part of a character.
};

CharacterClass ClassOf(char32_t character);

}  // namespace lodestar::model
