#include "worker/data/corpus_split.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>

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
  const auto find = [&parts](FilePart part) -> std::optional<size_t> {
    const auto found = std::find(parts.begin(), parts.end(), part);
    if (found == parts.end()) return std::nullopt;
    return found - parts.begin();
  };
  NameSplit split = {std::vector<FilePart>(parts.size(), by_default)};
  if (parts.size() == 1) return split;
  if (rule == NameRule::kAllOrNone) {
    if (!find(FilePart::kTrain).has_value()) return split;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i] == FilePart::kCut && IsDocumentation(relative_paths[i])) {
        parts[i] = FilePart::kLeftOut;
      }
    }
    if (const auto nameless = find(FilePart::kCut); nameless.has_value()) {
      std::optional<size_t> example = find(FilePart::kHeldout);
      for (size_t i = 0; i < parts.size() && !example.has_value(); ++i) {
        if (PartByName(relative_paths[i]) == FilePart::kLeftOut) example = i;
      }
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
    // Whether a tenth of the tokens so far is nearer with this file than without.
    const bool is_heldout = kHeldoutDivisor * (2 * heldout + count) < 2 * total;
    if (is_heldout) heldout += count;
    parts.push_back(is_heldout ? FilePart::kHeldout : FilePart::kTrain);
  }
  return parts;
}

}  // namespace lodestar
