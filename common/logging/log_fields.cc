// SPDX-License-Identifier: Apache-2.0

#include "common/logging/log_fields.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace lodestar::logging {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

void AddOnce(absl::string_view key, absl::string_view value, Fields& fields) {
  const bool is_there = std::any_of(fields.begin(), fields.end(),
                                    [key](const auto& field) { return field.first == key; });
  if (!is_there && !value.empty()) fields.emplace_back(key, value);
}

bool IsLogKey(absl::string_view word) {
  return std::find(std::begin(kLogKeys), std::end(kLogKeys), word) != std::end(kLogKeys);
}

// Maximum number in JSON. Every reader can represent whole numbers up to it exactly.
constexpr uint64_t kMaxNumber = uint64_t{1} << 53;

// Returns the digits at the beginning of `word`, or an empty text if a letter follows the digits:
// "7:" gives 7, "7th" gives nothing.
absl::string_view NumberOf(absl::string_view word) {
  size_t length = 0;
  while (length < word.size() && absl::ascii_isdigit(word[length])) ++length;
  const absl::string_view digits = word.substr(0, length);
  const bool is_whole = length == word.size() || !absl::ascii_isalnum(word[length]);
  uint64_t number = 0;
  return is_whole && absl::SimpleAtoi(digits, &number) && number <= kMaxNumber
             ? digits
             : absl::string_view();
}

// Returns the text between the quotes at the beginning of `word`, such as "a" for "'a'" and "'a';".
absl::string_view QuotedOf(absl::string_view word) {
  if (word.empty() || word[0] != '\'') return "";
  const size_t end = word.find('\'', 1);
  return end == word.npos ? absl::string_view() : word.substr(1, end - 1);
}

}  // namespace

bool IsNumberLogKey(absl::string_view key) {
  return key == "round" || key == "shard" || key == "view" || key == "worker";
}

Fields LogFields(absl::string_view message) {
  Fields fields;
  const std::vector<absl::string_view> words = absl::StrSplit(message, ' ');
  for (const absl::string_view word : words) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(word, absl::MaxSplits('=', 1));
    if (!IsLogKey(field.first)) continue;
    AddOnce(field.first, IsNumberLogKey(field.first) ? NumberOf(field.second) : field.second,
            fields);
  }
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == "round" || words[i] == "shard") {
      AddOnce(words[i], NumberOf(words[i + 1]), fields);
    } else if (words[i] == "worker") {
      AddOnce("name", QuotedOf(words[i + 1]), fields);
    }
  }
  return fields;
}

}  // namespace lodestar::logging
