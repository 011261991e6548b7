// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/tuning.h"

#include <cstdint>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/device.h"

namespace lodestar::cuda {
namespace {

constexpr absl::string_view kFormat = "1";
constexpr size_t kSumDigits = 8;
constexpr size_t kMostQuoted = 40;
constexpr size_t kCardLine = 1;  // index of the header's line that names the card

std::string FirstLine() { return absl::StrCat(kernels::kTuningTextBegin, kFormat); }

std::string Quote(absl::string_view text) {
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kMostQuoted)), "'");
}

std::string HeaderOf(const TuningOrigin& origin) {
  return absl::StrCat(FirstLine(), "\ncard: ", origin.card,
                      "\ncompute capability: ", origin.compute_capability / 10, ".",
                      origin.compute_capability % 10, "\ncuBLASLt: ", origin.cublaslt_version,
                      "\ndriver: ", origin.driver_version, "\nruntime: ", origin.runtime_version,
                      "\n");
}

// Returns the 32-bit FNV-1a hash (Fowler, Noll, Vo: draft-eastlake-fnv).
std::string ChecksumOf(absl::string_view text) {
  uint32_t sum = 0x811c9dc5u;
  for (const char c : text) {
    sum = (sum ^ static_cast<unsigned char>(c)) * 0x01000193u;
  }
  return absl::StrFormat("%08x", sum);
}

std::vector<absl::string_view> LinesOf(absl::string_view text) {
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  // If a text ends with a newline, the piece after the newline is empty and not a line. If the text
  // was cut, its last line has no newline. Such a line stays in the list, and its checksum will be
  // wrong.
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

struct ParsedLine {
  std::string name, choice, why;
};

// Returns the parts of a line. Returns nullopt if the line is damaged.
std::optional<ParsedLine> ParseLine(absl::string_view line) {
  if (line.size() < kSumDigits + 1 || line[kSumDigits] != ' ') return std::nullopt;
  const absl::string_view rest = line.substr(kSumDigits + 1);
  if (ChecksumOf(rest) != line.substr(0, kSumDigits)) return std::nullopt;
  const std::pair<absl::string_view, absl::string_view> named =
      absl::StrSplit(rest, absl::MaxSplits(" = ", 1));
  const std::pair<absl::string_view, absl::string_view> reasoned =
      absl::StrSplit(named.second, absl::MaxSplits(" | ", 1));
  if (named.first.empty() || reasoned.first.empty()) return std::nullopt;
  return ParsedLine{std::string(named.first), std::string(reasoned.first),
                    std::string(reasoned.second)};
}

// Divides a text into sections. A section begins with FirstLine().
std::vector<TuningSection> SectionsOf(const std::vector<absl::string_view>& lines) {
  std::vector<TuningSection> sections;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i] == FirstLine()) sections.push_back({.begin = i, .lines = {}});
    sections.back().lines.push_back(lines[i]);
  }
  return sections;
}

// Returns true if a section is about this card, whatever its versions. A section that ends before
// the line that names the card counts as about this card.
bool IsOfCard(const TuningSection& section, absl::string_view header) {
  return section.lines.size() <= kCardLine ||
         section.lines[kCardLine] == LinesOf(header)[kCardLine];
}

// Returns a text that says how the header in `lines` differs from `header`. Empty means that they
// are equal. Both headers have the same format.
std::string Differences(const std::vector<absl::string_view>& lines, absl::string_view header) {
  std::vector<std::string> found, wanted;
  const std::vector<absl::string_view> own = LinesOf(header);
  for (size_t i = 1; i < own.size(); ++i) {
    if (i >= lines.size()) return "it ends before its header does";
    if (lines[i] == own[i]) continue;
    found.push_back(Quote(lines[i]));
    wanted.push_back(Quote(own[i]));
  }
  if (found.empty()) return "";
  return absl::StrCat("it has ", absl::StrJoin(found, ", "), ", and here is ",
                      absl::StrJoin(wanted, ", "));
}

}  // namespace

Tuning::Tuning(const std::optional<std::string>& text, const TuningOrigin& origin)
    : is_kept_(text.has_value()), header_(HeaderOf(origin)) {
  if (is_kept_) choices_ = Parse(*text, &ignored_);
}

Tuning::Choices Tuning::Parse(absl::string_view text, std::string* ignored) const {
  Choices choices;
  if (text.empty()) return choices;
  const std::vector<absl::string_view> lines = LinesOf(text);
  if (lines.front() != FirstLine()) {
    *ignored = absl::StrCat("nothing of it is used: it begins ", Quote(lines.front()),
                            " instead of ", Quote(FirstLine()));
    return choices;
  }
  std::string former;  // says how this card's section differs
  for (const TuningSection& section : SectionsOf(lines)) {
    const std::string differences = Differences(section.lines, header_);
    if (differences.empty()) return ParseChoices(section, ignored);
    if (IsOfCard(section, header_)) former = differences;
  }
  *ignored = former.empty()
                 ? absl::StrCat("nothing of it is used: it has other cards' choices, and here is ",
                                Quote(LinesOf(header_)[kCardLine]), "; they stay")
                 : absl::StrCat(
                       "nothing of it is used, and it will be replaced, because choices are good "
                       "for one card and version only: ",
                       former);
  return choices;
}

Tuning::Choices Tuning::ParseChoices(const TuningSection& section, std::string* ignored) const {
  Choices choices;
  const std::vector<absl::string_view>& lines = section.lines;
  int64_t damaged = 0;
  size_t first_damaged = 0;
  for (size_t i = LinesOf(header_).size(); i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    std::optional<ParsedLine> line = ParseLine(lines[i]);
    if (line.has_value()) {
      choices.emplace(std::move(line->name), Choice{std::move(line->choice), std::move(line->why)});
    } else if (damaged++ == 0) {
      first_damaged = i;
    }
  }
  if (damaged > 0) {
    *ignored = absl::StrCat(
        "damaged lines are left out, and what they were about is measured again: ", damaged, " of ",
        lines.size(), ", the first is line ", section.begin + first_damaged + 1, ": ",
        Quote(lines[first_damaged]));
  }
  return choices;
}

std::optional<std::string> Tuning::Find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto it = choices_.find(name);
  if (it == choices_.end()) return std::nullopt;
  return it->second.choice;
}

void Tuning::Keep(const std::string& name, const std::string& choice, const std::string& why) {
  if (!is_kept_) return;
  const std::lock_guard lock(mutex_);
  choices_[name] = {choice, why};
}

void Tuning::Refuse(const std::string& name, const std::string& why) {
  const std::lock_guard lock(mutex_);
  const auto it = choices_.find(name);
  if (it == choices_.end()) return;
  absl::StrAppend(&refusals_, refusals_.empty() ? "" : "\n", name,
                  ": what was kept is not used: ", why);
  refused_[name] = it->second.choice;
  choices_.erase(it);
}

std::string Tuning::OfOtherCards(absl::string_view text) const {
  const std::vector<absl::string_view> lines = LinesOf(text);
  if (text.empty() || lines.front() != FirstLine()) return "";
  std::string whole;
  for (const TuningSection& section : SectionsOf(lines)) {
    if (!IsOfCard(section, header_)) {
      absl::StrAppend(&whole, absl::StrJoin(section.lines, "\n"), "\n");
    }
  }
  return whole;
}

std::string Tuning::Merge(absl::string_view text) const {
  if (!is_kept_) return "";
  std::string ignored;
  Choices merged = Parse(text, &ignored);
  const std::lock_guard lock(mutex_);
  for (const auto& [name, choice] : refused_) {
    const auto it = merged.find(name);
    if (it != merged.end() && it->second.choice == choice) merged.erase(it);
  }
  merged.insert(choices_.begin(), choices_.end());
  std::string whole = OfOtherCards(text);
  absl::StrAppend(&whole, header_, "\n");
  for (const auto& [name, choice] : merged) {
    const std::string line = absl::StrCat(name, " = ", choice.choice, " | ", choice.why);
    absl::StrAppend(&whole, ChecksumOf(line), " ", line, "\n");
  }
  return whole;
}

std::string Tuning::Describe() const {
  const std::lock_guard lock(mutex_);
  return absl::StrCat(ignored_, ignored_.empty() || refusals_.empty() ? "" : "\n", refusals_);
}

}  // namespace lodestar::cuda
