// SPDX-License-Identifier: Apache-2.0

#include "worker/data/token_stream.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "common/runtime/status_macros.h"

namespace lodestar::data {
namespace {

// Size of a read in bytes. With most models, a whole window fits into one read.
constexpr int64_t kReadBytes = 16 * 1024;

template <typename Token>
void Widen(const uint8_t* in, int64_t count, int32_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    Token token;
    std::memcpy(&token, in + i * sizeof(token), sizeof(token));
    out[i] = static_cast<int32_t>(token);
  }
}

}  // namespace

void WidenTokens(TokenWidth width, const uint8_t* in, int64_t count, int32_t* out) {
  switch (width) {
    case TokenWidth::kOneByte:
      return Widen<uint8_t>(in, count, out);
    case TokenWidth::kTwoBytes:
      return Widen<uint16_t>(in, count, out);
    case TokenWidth::kFourBytes:
      return Widen<uint32_t>(in, count, out);
  }
}

void TokenStream::Append(std::shared_ptr<const DataFile> file, int64_t offset, int64_t num_tokens) {
  if (num_tokens == 0) return;
  ends_.push_back(this->num_tokens() + num_tokens);
  parts_.push_back({std::move(file), offset});
}

absl::Status TokenStream::Copy(int64_t begin, int64_t count, int32_t* out) const {
  uint8_t buffer[kReadBytes];
  const int64_t token_bytes = WidthBytes(width_);
  size_t part = std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin();
  while (count > 0) {
    const int64_t part_begin = part == 0 ? 0 : ends_[part - 1];
    const int64_t here = std::min({count, ends_[part] - begin, kReadBytes / token_bytes});
    RETURN_IF_ERROR(
        parts_[part].file->Read(parts_[part].offset + (begin - part_begin) * token_bytes,
                                absl::MakeSpan(buffer).subspan(0, here * token_bytes)));
    WidenTokens(width_, buffer, here, out);
    begin += here;
    out += here;
    count -= here;
    if (begin == ends_[part]) ++part;
  }
  return absl::OkStatus();
}

}  // namespace lodestar::data
