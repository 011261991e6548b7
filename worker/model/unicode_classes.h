// Letters, numbers and white space of Unicode 16, as GPT-2's pattern for words tells them apart.
#pragma once

namespace lodestar::model {

enum class CharacterClass {
  kLetter,  // \p{L}
  kNumber,  // \p{N}
  kSpace,   // \s
  kOther,   // also what is no character
};

CharacterClass ClassOf(char32_t character);

}  // namespace lodestar::model
