// SPDX-License-Identifier: Apache-2.0

#include "worker/model/byte_pair_tokenizer.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/runtime/byte_letters.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"
#include "worker/model/word_splitter.h"

namespace lodestar::model {
namespace {

constexpr char kEndOfText[] = "<|endoftext|>";
constexpr int32_t kNone = -1;

// A token that is part of a word. The parts of a word are a linked list.
struct Part {
  // kNone means that this part was merged into the previous part.
  int32_t token = kNone;
  int32_t previous = kNone;
  int32_t next = kNone;
};

}  // namespace

absl::StatusOr<std::unique_ptr<BytePairTokenizer>> BytePairTokenizer::Create(const Config& config) {
  std::unique_ptr<BytePairTokenizer> tokenizer(new BytePairTokenizer(config));
  RETURN_IF_ERROR(tokenizer->AddTokens(config));
  RETURN_IF_ERROR(tokenizer->AddMerges(config));
  return tokenizer;
}

absl::Status BytePairTokenizer::AddTokens(const Config& config) {
  const auto add = [this](const std::string& text, int32_t token) {
    if (token < 0) {
      return absl::InvalidArgumentError(absl::StrCat("token \"", PeerText(text), "\" has number ",
                                                     token, "; numbers must be at least 0"));
    }
    const std::string bytes = BytesOfLetters(text).value_or(text);
    const auto [entry, is_new] = bytes_.emplace(token, bytes);
    if (!is_new && entry->second != bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("token ", token, " is both \"", PeerText(entry->second), "\" and \"",
                       PeerText(bytes), "\"; download the tokenizer again"));
    }
    if (text == kEndOfText) end_of_text_ = token;
    vocabulary_ = std::max(vocabulary_, int64_t{token} + 1);
    return absl::OkStatus();
  };
  token_of_byte_.fill(kNone);
  for (const auto& [letters, token] : config.tokens) {
    RETURN_IF_ERROR(add(letters, token));
    if (const auto bytes = BytesOfLetters(letters); bytes.has_value() && bytes->size() == 1) {
      token_of_byte_[static_cast<uint8_t>(bytes->front())] = token;
    }
  }
  for (size_t byte = 0; byte < token_of_byte_.size(); ++byte) {
    if (token_of_byte_[byte] != kNone) continue;
    return absl::InvalidArgumentError(absl::StrCat("there is no token for byte ", byte,
                                                   ", which byte-level BPE writes as \"",
                                                   LetterOfByte(static_cast<uint8_t>(byte)), "\""));
  }
  for (const AddedToken& added : config.added) {
    RETURN_IF_ERROR(add(added.text, added.token));
    if (added.text.empty()) continue;
    AddedTokens& tokens = added.is_found_first ? found_first_ : found_then_;
    tokens[static_cast<uint8_t>(added.text[0])].push_back(added);
  }
  return absl::OkStatus();
}

absl::Status BytePairTokenizer::AddMerges(const Config& config) {
  absl::flat_hash_map<absl::string_view, int32_t> tokens;
  for (const auto& [letters, token] : config.tokens) tokens.emplace(letters, token);
  int32_t rank = 0;
  for (const auto& [left, right] : config.merges) {
    const std::string joined = left + right;
    for (const absl::string_view letters :
         {absl::string_view(left), absl::string_view(right), absl::string_view(joined)}) {
      if (tokens.contains(letters)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("merge ", rank + 1, " joins \"", PeerText(left), "\" and \"",
                       PeerText(right), "\", but \"", PeerText(letters), "\" is not a token"));
    }
    merges_.insert_or_assign({tokens[left], tokens[right]}, Merge{rank++, tokens[joined]});
  }
  return absl::OkStatus();
}

absl::string_view BytePairTokenizer::BytesOf(int32_t token) const {
  const auto entry = bytes_.find(token);
  return entry != bytes_.end() ? absl::string_view(entry->second) : absl::string_view();
}

std::vector<int32_t> BytePairTokenizer::Beginning() const {
  if (!end_of_text_.has_value()) return {};
  return {*end_of_text_};
}

std::vector<int32_t> BytePairTokenizer::Encode(absl::string_view text) const {
  std::vector<int32_t> tokens;
  EncodeBetween(text, /*is_first_pass=*/true, tokens);
  return tokens;
}

// Finds the leftmost added token. If several begin there, finds the longest.
std::optional<BytePairTokenizer::Found> BytePairTokenizer::FindAdded(const AddedTokens& added,
                                                                     absl::string_view text) {
  for (size_t begin = 0; begin < text.size(); ++begin) {
    std::optional<Found> longest;
    for (const AddedToken& token : added[static_cast<uint8_t>(text[begin])]) {
      const size_t num_bytes = token.text.size();
      if (!absl::StartsWith(text.substr(begin), token.text)) continue;
      if (longest.has_value() && num_bytes <= longest->num_bytes) continue;
      longest = {begin, num_bytes, token.token};
    }
    if (longest.has_value()) return longest;
  }
  return std::nullopt;
}

void BytePairTokenizer::EncodeBetween(absl::string_view text, bool is_first_pass,
                                      std::vector<int32_t>& out) const {
  const auto encode_rest = [&](absl::string_view rest) {
    if (rest.empty()) return;
    if (is_first_pass) {
      EncodeBetween(rest, /*is_first_pass=*/false, out);
    } else {
      EncodeWords(rest, out);
    }
  };
  while (const auto found = FindAdded(is_first_pass ? found_first_ : found_then_, text)) {
    encode_rest(text.substr(0, found->begin));
    out.push_back(found->token);
    text.remove_prefix(found->begin + found->num_bytes);
  }
  encode_rest(text);
}

void BytePairTokenizer::EncodeWords(absl::string_view text, std::vector<int32_t>& out) const {
  std::string with_space;
  if (adds_space_ && text[0] != ' ') {
    with_space = absl::StrCat(" ", text);
    text = with_space;
  }
  if (!splits_words_) return EncodeWord(text, out);
  for (const absl::string_view word : SplitIntoWords(text)) EncodeWord(word, out);
}

void BytePairTokenizer::EncodeWord(absl::string_view word, std::vector<int32_t>& out) const {
  std::vector<Part> parts(word.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    parts[i] = {token_of_byte_[static_cast<uint8_t>(word[i])], index - 1,
                i + 1 < parts.size() ? index + 1 : kNone};
  }
  // A possible merge: its rank, its left part, and the resulting token. The lowest rank comes
  // first, and among equal ranks the leftmost part.
  using Step = std::tuple<int32_t, int32_t, int32_t>;
  std::priority_queue<Step, std::vector<Step>, std::greater<Step>> steps;
  const auto merge_at = [&](int32_t left) -> std::optional<Merge> {
    if (left == kNone || parts[left].token == kNone || parts[left].next == kNone) {
      return std::nullopt;
    }
    const auto merge = merges_.find({parts[left].token, parts[parts[left].next].token});
    if (merge == merges_.end()) return std::nullopt;
    return merge->second;
  };
  const auto look_at = [&](int32_t left) {
    if (const auto merge = merge_at(left)) steps.emplace(merge->rank, left, merge->token);
  };
  for (size_t i = 0; i < parts.size(); ++i) look_at(static_cast<int32_t>(i));
  while (!steps.empty()) {
    const auto [rank, left, token] = steps.top();
    steps.pop();
    // Skips the step if one of its two parts has changed since the step was queued.
    const auto merge = merge_at(left);
    if (!merge.has_value() || merge->token != token) continue;
    Part& merged = parts[left];
    Part& right = parts[merged.next];
    merged.token = token;
    merged.next = right.next;
    right.token = kNone;
    if (merged.next != kNone) parts[merged.next].previous = left;
    look_at(merged.previous);
    look_at(left);
  }
  for (int32_t i = parts.empty() ? kNone : 0; i != kNone; i = parts[i].next) {
    out.push_back(parts[i].token);
  }
}

}  // namespace lodestar::model
