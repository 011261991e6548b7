#include "common/suggestion.h"

#include <algorithm>
#include <utility>

namespace lodestar {
namespace {

// Edits from `a` to `b`, where letters that changed places with their neighbour are one edit
// (optimal string alignment).
size_t EditDistance(absl::string_view a, absl::string_view b) {
  // Rows of the table of distances between prefixes: two back, one back, the current one.
  std::vector<size_t> before_last(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> current(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) current[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(current);
    current[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({replaced, last[j] + 1, current[j - 1] + 1});
      const bool is_swap =
          i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && a[i - 1] != b[j - 1];
      if (is_swap) current[j] = std::min(current[j], before_last[j - 2] + 1);
    }
  }
  return current[b.size()];
}

}  // namespace

std::string ClosestWord(absl::string_view word, const std::vector<std::string>& known) {
  const std::string* closest = nullptr;
  // Letters that have changed places, or are others, are likelier than those that are missing.
  std::pair<size_t, size_t> least = {word.size() / 3 + 1, 0};
  for (const std::string& candidate : known) {
    const size_t longer = std::max(word.size(), candidate.size());
    const size_t shorter = std::min(word.size(), candidate.size());
    const std::pair<size_t, size_t> edits = {EditDistance(word, candidate), longer - shorter};
    if (edits >= least) continue;
    least = edits;
    closest = &candidate;
  }
  return closest == nullptr ? "" : *closest;
}

}  // namespace lodestar
