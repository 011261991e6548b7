// SPDX-License-Identifier: Apache-2.0

#include "worker/data/corpus_split.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

namespace lodestar::data {
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

// The part that a path gives to a file if weak names count, too. Weak names, such as "dev", count
// only if the corpus also has files for training.
struct WeakName {
  FilePart part = FilePart::kCut;
  // If names of held-out data have different ranks, only files of the lowest rank are held out.
  int rank = 0;
};

WeakName WeakNameOfWord(absl::string_view word) {
  if (word == "dev" || word == "development") return {FilePart::kHeldout, 1};
  if (word == "heldout" || word == "held" || word == "holdout") return {FilePart::kHeldout, 2};
  if (word == "eval" || word == "evaluation") return {FilePart::kHeldout, 3};
  if (word == "testing") return {FilePart::kLeftOut};
  return {PartOfWord(word)};
}

// Returns the part that the path gives, weak names included. The first of these words that names a
// part decides:
// - all words of the file's name;
// - the first and the last word of each folder's name, from the nearest folder on.
// For example, "validation-shuffled/1.txt" is held out.
WeakName WeakNameOf(absl::string_view relative_path) {
  std::vector<absl::string_view> names = absl::StrSplit(relative_path, '/');
  std::vector<std::string> words = WordsOf(names.back());
  names.pop_back();
  for (auto folder = names.rbegin(); folder != names.rend(); ++folder) {
    std::vector<std::string> of_folder = WordsOf(*folder);
    if (of_folder.size() > 1 && of_folder.back().empty()) of_folder.pop_back();
    words.push_back(of_folder.front());
    words.push_back(of_folder.back());
  }
  for (const std::string& word : words) {
    if (const WeakName name = WeakNameOfWord(word); name.part != FilePart::kCut) return name;
  }
  return {};
}

// If there are files for training, sets the parts of all other files by their weak names, such as
// "dev".
void AddWeakNames(const std::vector<absl::string_view>& relative_paths,
                  std::vector<FilePart>& parts) {
  std::vector<WeakName> weak(parts.size());
  bool has_train = false;
  std::optional<int> rank;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] != FilePart::kCut) {
      weak[i] = {parts[i]};
    } else if (!IsDocumentation(relative_paths[i])) {
      weak[i] = WeakNameOf(relative_paths[i]);
    }
    has_train |= weak[i].part == FilePart::kTrain;
    if (weak[i].part == FilePart::kHeldout) rank = std::min(rank.value_or(3), weak[i].rank);
  }
  if (!has_train) return;
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool is_other = weak[i].part == FilePart::kHeldout && weak[i].rank != rank;
    parts[i] = is_other ? FilePart::kLeftOut : weak[i].part;
  }
}

}  // namespace

FilePart PartByName(absl::string_view relative_path) {
  std::vector<absl::string_view> names = absl::StrSplit(relative_path, '/');
  std::vector<std::string> words = WordsOf(names.back());
  names.pop_back();
  for (absl::string_view folder : names) words.push_back(absl::AsciiStrToLower(folder));
  // Held-out names come first, because too little training data is better than training on held-out
  // data.
  for (const FilePart part : {FilePart::kHeldout, FilePart::kLeftOut, FilePart::kTrain}) {
    if (std::any_of(words.begin(), words.end(),
                    [part](const std::string& word) { return PartOfWord(word) == part; })) {
      return part;
    }
  }
  return FilePart::kCut;
}

bool IsDocumentation(absl::string_view relative_path) {
  static constexpr absl::string_view kNames[] = {
      "readme",       "license",      "licence",       "copying",      "notice",   "citation",
      "changelog",    "authors",      "contributing",  "credits",      "md5sum",   "md5sums",
      "sha1sum",      "sha1sums",     "sha256sum",     "sha256sums",   "checksum", "checksums",
      "dataset_card", "dataset_info", "dataset_infos", "dataset_dict",
  };
  const absl::string_view name = relative_path.substr(relative_path.rfind('/') + 1);
  const std::string stem = absl::AsciiStrToLower(name.substr(0, name.find('.')));
  return std::find(std::begin(kNames), std::end(kNames), stem) != std::end(kNames);
}

NameSplit SplitByNames(const std::vector<absl::string_view>& relative_paths, NameRule rule,
                       bool has_other_heldout) {
  const FilePart by_default = has_other_heldout ? FilePart::kTrain : FilePart::kCut;
  std::vector<FilePart> parts;
  for (absl::string_view path : relative_paths) parts.push_back(PartByName(path));
  AddWeakNames(relative_paths, parts);
  const auto find = [&parts](FilePart part) -> std::optional<size_t> {
    const auto found = std::find(parts.begin(), parts.end(), part);
    if (found == parts.end()) return std::nullopt;
    return found - parts.begin();
  };
  NameSplit split = {std::vector<FilePart>(parts.size(), by_default)};
  if (parts.size() == 1) return split;
  if (rule == NameRule::kAllOrNone) {
    if (!find(FilePart::kTrain).has_value()) return split;
    std::optional<size_t> example = find(FilePart::kHeldout);
    if (!example.has_value()) example = find(FilePart::kLeftOut);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i] == FilePart::kCut && IsDocumentation(relative_paths[i])) {
        parts[i] = FilePart::kLeftOut;
      }
    }
    if (const auto nameless = find(FilePart::kCut); nameless.has_value()) {
      if (example.has_value()) split.ignored = {*nameless, *example};
      return split;
    }
  }
  const FilePart training = find(FilePart::kHeldout).has_value() ? FilePart::kTrain : by_default;
  for (FilePart& part : parts) {
    if (part == FilePart::kHeldout && has_other_heldout) part = FilePart::kLeftOut;
    if (part == FilePart::kTrain || part == FilePart::kCut) part = training;
  }
  split.parts = std::move(parts);
  return split;
}

int64_t TypicalFileTokens(std::vector<int64_t> num_tokens) {
  std::sort(num_tokens.begin(), num_tokens.end());
  const int64_t total = std::accumulate(num_tokens.begin(), num_tokens.end(), int64_t{0});
  int64_t sum = 0;
  for (const int64_t count : num_tokens) {
    sum += count;
    if (2 * sum >= total) return count;
  }
  return 0;
}

std::vector<FilePart> HoldOutWholeFiles(const std::vector<int64_t>& num_tokens) {
  std::vector<FilePart> parts;
  int64_t total = 0;
  int64_t heldout = 0;
  for (const int64_t count : num_tokens) {
    total += count;
    // Holds the file out if this brings the share of held-out tokens nearer to a tenth.
    const bool is_heldout = kHeldoutDivisor * (2 * heldout + count) < 2 * total;
    if (is_heldout) heldout += count;
    parts.push_back(is_heldout ? FilePart::kHeldout : FilePart::kTrain);
  }
  return parts;
}

}  // namespace lodestar::data
