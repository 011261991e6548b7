// Tokens of many mapped files, seen as one sequence.
#pragma once

#include <cstdint>
#include <vector>

namespace lodestar {

enum class TokenWidth : uint8_t { kOneByte = 1, kTwoBytes = 2 };  // two: little-endian

// Does not own the memory. Thread-safe once filled.
class TokenStream {
 public:
  explicit TokenStream(TokenWidth width) : width_(width) {}

  // `data` holds num_tokens tokens of the stream's width, at any alignment.
  void Append(const uint8_t* data, int64_t num_tokens);
  int64_t num_tokens() const { return ends_.empty() ? 0 : ends_.back(); }
  // Writes tokens [begin, begin + count) to out. REQUIRES: 0 <= begin, begin + count <=
  // num_tokens().
  void Copy(int64_t begin, int64_t count, int32_t* out) const;

 private:
  TokenWidth width_;
  std::vector<const uint8_t*> parts_;
  std::vector<int64_t> ends_;  // ends_[i]: tokens in parts 0..i
};

}  // namespace lodestar
