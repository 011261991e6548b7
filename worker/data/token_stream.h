// SPDX-License-Identifier: Apache-2.0

// TokenStream is the tokens of many files as one sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "worker/data/data_file.h"

namespace lodestar::data {

// Bytes per token. Tokens of more than one byte are little-endian.
enum class TokenWidth : uint8_t { kOneByte = 1, kTwoBytes = 2, kFourBytes = 4 };

inline int64_t WidthBytes(TokenWidth width) { return static_cast<int64_t>(width); }
// Writes `count` tokens to `out`. `in` may have any alignment. Tokens of 2^31 and above become
// negative.
void WidenTokens(TokenWidth width, const uint8_t* in, int64_t count, int32_t* out);

// The tokens of all appended files. Thread-safe after the last Append().
class TokenStream {
 public:
  explicit TokenStream(TokenWidth width) : width_(width) {}

  // Appends `num_tokens` tokens of `file` to the stream. The first of them is at byte `offset`.
  void Append(std::shared_ptr<const DataFile> file, int64_t offset, int64_t num_tokens);
  int64_t num_tokens() const { return ends_.empty() ? 0 : ends_.back(); }
  // Writes tokens [begin, begin + count) to out. Requires: 0 <= begin, begin + count <=
  // num_tokens(). Errors: those of DataFile::Read().
  absl::Status Copy(int64_t begin, int64_t count, int32_t* out) const;

 private:
  struct Part {
    std::shared_ptr<const DataFile> file;
    int64_t offset = 0;
  };

  TokenWidth width_;
  std::vector<Part> parts_;
  // ends_[i] is the number of tokens in parts 0 to i.
  std::vector<int64_t> ends_;
};

}  // namespace lodestar::data
