// The 1024-byte header that llm.c writes in front of tokens: 256 int32, of which the first three
// are a magic number, a version and the number of tokens.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/data/token_stream.h"

namespace lodestar {

inline constexpr int64_t kTokensHeaderBytes = 1024;

// Which tokens follow, by magic number and version.
struct TokensHeader {
  absl::string_view tokenizer;  // "GPT-2", "Llama 3"
  TokenWidth width = TokenWidth::kTwoBytes;
  int64_t vocabulary = 0;
};

// True if a file that starts with these bytes has a header of llm.c, also one that
// ParseTokensHeader() refuses.
bool HasTokensHeader(absl::Span<const uint8_t> start);

// Of a file of `num_bytes` that starts with a header. Errors: InvalidArgument naming the path, the
// offset and what was expected, for a magic number of other data, another version, a file that ends
// within the header, or a number of tokens that does not match the size.
absl::StatusOr<TokensHeader> ParseTokensHeader(const std::string& path,
                                               absl::Span<const uint8_t> start, int64_t num_bytes);

}  // namespace lodestar
