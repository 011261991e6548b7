// SPDX-License-Identifier: Apache-2.0

// Splits a text into GPT-2's words. Byte-level BPE merges only within a word. Source: encoder.py of
// github.com/openai/gpt-2, the pattern
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
#pragma once

#include <vector>

#include "absl/strings/string_view.h"

namespace lodestar::model {

// Returns the words of `text` in order. Together they are the whole text. A byte that is not valid
// UTF-8 counts as a character that is neither letter nor number nor white space.
std::vector<absl::string_view> SplitIntoWords(absl::string_view text);

}  // namespace lodestar::model
