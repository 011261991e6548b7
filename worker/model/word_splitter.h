// GPT-2's words: the parts of a text within which byte-level BPE merges. Source: encoder.py of
// github.com/openai/gpt-2, the pattern
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
#pragma once

#include <vector>

#include "absl/strings/string_view.h"

namespace lodestar::model {

// All of `text` in order, as parts of it. A byte that begins no UTF-8 is a character by itself,
// neither letter nor number nor white space.
std::vector<absl::string_view> SplitIntoWords(absl::string_view text);

}  // namespace lodestar::model
