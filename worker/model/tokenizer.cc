// SPDX-License-Identifier: Apache-2.0

#include "worker/model/tokenizer.h"

namespace lodestar::model {

ByteTokenizer::ByteTokenizer() {
  constexpr int kBytes = 256;
  for (int byte = 0; byte < kBytes; ++byte) bytes_.push_back(static_cast<char>(byte));
}

std::vector<int32_t> ByteTokenizer::Encode(absl::string_view text) const {
  std::vector<int32_t> tokens;
  for (const char byte : text) tokens.push_back(static_cast<uint8_t>(byte));
  return tokens;
}

absl::string_view ByteTokenizer::BytesOf(int32_t token) const {
  const bool is_there = token >= 0 && token < vocabulary();
  return is_there ? absl::string_view(bytes_).substr(token, 1) : absl::string_view();
}

}  // namespace lodestar::model
