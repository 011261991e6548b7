#include "worker/data/corpus_split.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

namespace lodestar {
namespace {

FilePart PartOfWord(absl::string_view word) {
  if (word == "train" || word == "training") return FilePart::kTrain;
  if (word == "val" || word == "valid" || word == "validation") return FilePart::kHeldout;
  if (word == "test") return FilePart::kLeftOut;
  return FilePart::kCut;
}

std::vector<std::string> WordsOf(absl::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    if (absl::ascii_isalpha(c)) {
      words.back().push_back(absl::ascii_tolower(c));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  return words;
}

}  // namespace

FilePart PartByName(absl::string_view relative_path) {
  std::vector<absl::string_view> names = absl::StrSplit(relative_path, '/');
  std::vector<std::string> words = WordsOf(names.back());
  names.pop_back();
  for (absl::string_view folder : names) words.push_back(absl::AsciiStrToLower(folder));
  // Rather too little training data than training on what was to be held out.
  for (const FilePart part : {FilePart::kHeldout, FilePart::kLeftOut, FilePart::kTrain}) {
    if (std::any_of(words.begin(), words.end(),
                    [part](const std::string& word) { return PartOfWord(word) == part; })) {
      return part;
    }
  }
  return FilePart::kCut;
}

std::vector<FilePart> SplitByNames(const std::vector<absl::string_view>& relative_paths,
                                   NameRule rule, bool has_other_heldout) {
  const FilePart by_default = has_other_heldout ? FilePart::kTrain : FilePart::kCut;
  std::vector<FilePart> parts;
  for (absl::string_view path : relative_paths) parts.push_back(PartByName(path));
  const auto has = [&parts](FilePart part) {
    return std::find(parts.begin(), parts.end(), part) != parts.end();
  };
  const bool is_ignored =
      rule == NameRule::kAllOrNone && (has(FilePart::kCut) || !has(FilePart::kTrain));
  if (is_ignored || parts.size() == 1) return std::vector<FilePart>(parts.size(), by_default);
  const FilePart training = has(FilePart::kHeldout) ? FilePart::kTrain : by_default;
  for (FilePart& part : parts) {
    if (part == FilePart::kHeldout && has_other_heldout) part = FilePart::kLeftOut;
    if (part == FilePart::kTrain || part == FilePart::kCut) part = training;
  }
  return parts;
}

}  // namespace lodestar
