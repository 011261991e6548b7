// Guesses what a mistyped word was meant to be.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lodestar {

// Returns the word of `known` that becomes `word` with the fewest insertions, deletions,
// replacements and swaps of neighbours. If several need as few, returns the first of them. Empty
// means that none is near: in each, more than a third of the letters differ.
std::string ClosestWord(absl::string_view word, const std::vector<std::string>& known);

// Returns a hint for the user who gave the flag `name`, which is not in `own`, the flags of this
// program. The hint names the flag that was meant, or the program that has the flag. Empty means
// that no flag is near.
std::string FlagHint(absl::string_view name, const std::vector<std::string>& own);

}  // namespace lodestar
