// Guesses what a mistyped word was meant to be.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lodestar {

// The one of `known` that takes the fewest insertions, deletions, replacements and swaps of
// neighbours to become `word`; the first of several. Empty if none is near: more than a third of
// the letters differ.
std::string ClosestWord(absl::string_view word, const std::vector<std::string>& known);

// What to tell the user of the flag `name` that is none of `own`, the flags of this program: the
// flag that is meant, or the program that has it. Empty if no flag is near.
std::string FlagHint(absl::string_view name, const std::vector<std::string>& own);

}  // namespace lodestar
