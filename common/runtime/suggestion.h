// SPDX-License-Identifier: Apache-2.0

// Guesses what a mistyped word was meant to be.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lodestar {

// Returns the word of `known` that becomes `word` with the fewest insertions, deletions,
// replacements and swaps of neighbours. If several words need the same number, the nearest length
// decides, then the order. Empty means that every word needs more edits than a third of the letters
// of `word`.
std::string ClosestWord(absl::string_view word, const std::vector<std::string>& known);

// Returns a hint for a user who gave the flag `name`. `own` are the flags of this program, without
// `name`. The hint names the flag that was probably meant, or the program that has the flag. Empty
// means that there is no similar flag.
std::string FlagHint(absl::string_view name, const std::vector<std::string>& own);

}  // namespace lodestar
