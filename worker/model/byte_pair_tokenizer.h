// SPDX-License-Identifier: Apache-2.0

// Byte-level BPE as in GPT-2. A text is cut into words (word_splitter.h). In each word, two
// neighbouring tokens are merged into one, until no neighbouring pair is in the list of merges. The
// pair that comes first in the list is merged first. If it occurs several times, the leftmost pair
// is merged first.
//
// Sources:
// - Sennrich et al. 2016, section 3.2; encoder.py of github.com/openai/gpt-2.
// - For the order of equal pairs: github.com/huggingface/tokenizers.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/model/tokenizer.h"

namespace lodestar::model {

class BytePairTokenizer final : public Tokenizer {
 public:
  // A token that is found in a text before the text is cut into words.
  struct AddedToken {
    std::string text;
    int32_t token = 0;
    // True means that the token is looked for before the added tokens for which this field is
    // false.
    bool is_found_first = true;
  };
  struct Config {
    // Text and number of each token. The text has one letter per byte
    // (common/runtime/byte_letters.h).
    std::vector<std::pair<std::string, int32_t>> tokens;
    // Pairs of tokens that are merged, in the order in which they are applied.
    std::vector<std::pair<std::string, std::string>> merges;
    std::vector<AddedToken> added;
    // True if a space is added before a text that does not begin with a space.
    bool adds_space = false;
    // False if all text between two added tokens is one word.
    bool splits_words = true;
  };

  // Makes a tokenizer. Errors: InvalidArgument naming a token whose number is negative or used
  // twice, a byte without a token, or a merge whose parts or result are not tokens.
  static absl::StatusOr<std::unique_ptr<BytePairTokenizer>> Create(const Config& config);

  int64_t vocabulary() const override { return vocabulary_; }
  // Returns the tokens of `text`. Takes O(n log n) time for a word of n bytes.
  std::vector<int32_t> Encode(absl::string_view text) const override;
  absl::string_view BytesOf(int32_t token) const override;
  std::vector<int32_t> Beginning() const override;
  // Returns the number of "<|endoftext|>", if there is such a token.
  std::optional<int32_t> end_of_text() const override { return end_of_text_; }

 private:
  struct Merge {
    int32_t rank = 0;
    int32_t token = 0;
  };
  // The added tokens, by the first byte of their text.
  using AddedTokens = std::array<std::vector<AddedToken>, 256>;
  struct Found {
    size_t begin = 0;
    size_t num_bytes = 0;
    int32_t token = 0;
  };

  explicit BytePairTokenizer(const Config& config)
      : adds_space_(config.adds_space), splits_words_(config.splits_words) {}
  absl::Status AddTokens(const Config& config);
  absl::Status AddMerges(const Config& config);
  static std::optional<Found> FindAdded(const AddedTokens& added, absl::string_view text);
  void EncodeBetween(absl::string_view text, bool is_first_pass, std::vector<int32_t>& out) const;
  void EncodeWords(absl::string_view text, std::vector<int32_t>& out) const;
  void EncodeWord(absl::string_view word, std::vector<int32_t>& out) const;

  const bool adds_space_;
  const bool splits_words_;
  int64_t vocabulary_ = 0;
  // The bytes of each token.
  absl::flat_hash_map<int32_t, std::string> bytes_;
  std::array<int32_t, 256> token_of_byte_ = {};
  absl::flat_hash_map<std::pair<int32_t, int32_t>, Merge> merges_;
  AddedTokens found_first_;
  AddedTokens found_then_;
  std::optional<int32_t> end_of_text_;
};

}  // namespace lodestar::model
