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

}  // namespace lodestar
