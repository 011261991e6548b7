// Text as tokens of a model, and back.
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
  // Tokens are below it.
  virtual int64_t vocabulary() const = 0;
  virtual std::vector<int32_t> Encode(absl::string_view text) const = 0;
  // Empty for what is no token.
  virtual absl::string_view BytesOf(int32_t token) const = 0;
  // What an empty prompt begins with; nothing if only a text can be gone on from.
  virtual std::vector<int32_t> Beginning() const = 0;
  // The token behind which another text begins.
  virtual std::optional<int32_t> end_of_text() const = 0;
};

// A token per byte, as models have that were trained on text. An empty prompt is a line break.
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
