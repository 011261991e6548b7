// SPDX-License-Identifier: Apache-2.0

// Tokenizer converts text to the tokens of a model and back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lodestar::model {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Returns the size of the vocabulary: all tokens are below this number.
  virtual int64_t vocabulary() const = 0;
  virtual std::vector<int32_t> Encode(absl::string_view text) const = 0;
  // Returns the bytes of a token. Empty if `token` is not a token.
  virtual absl::string_view BytesOf(int32_t token) const = 0;
  // Returns the tokens that stand for an empty prompt. Empty means that a prompt is required.
  virtual std::vector<int32_t> Beginning() const = 0;
  // Returns the token that ends a text, if there is one.
  virtual std::optional<int32_t> end_of_text() const = 0;
};

// A tokenizer with one token per byte, for models that were trained on text files. For an empty
// prompt, it uses a line break.
class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer();
  int64_t vocabulary() const override { return static_cast<int64_t>(bytes_.size()); }
  std::vector<int32_t> Encode(absl::string_view text) const override;
  absl::string_view BytesOf(int32_t token) const override;
  std::vector<int32_t> Beginning() const override { return {'\n'}; }
  std::optional<int32_t> end_of_text() const override { return std::nullopt; }

 private:
  std::string bytes_;
};

}  // namespace lodestar::model
