#include "worker/data/token_stream.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace lodestar {
namespace {

void Widen(TokenWidth width, const uint8_t* in, int64_t count, int32_t* out) {
  if (width == TokenWidth::kOneByte) {
    std::copy(in, in + count, out);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    uint16_t token;
    std::memcpy(&token, in + 2 * i, sizeof(token));
    out[i] = token;
  }
}

}  // namespace

void TokenStream::Append(const uint8_t* data, int64_t num_tokens) {
  if (num_tokens == 0) return;
  ends_.push_back(this->num_tokens() + num_tokens);
  parts_.push_back(data);
}

void TokenStream::Copy(int64_t begin, int64_t count, int32_t* out) const {
  size_t part = std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin();
  while (count > 0) {
    const int64_t part_begin = part == 0 ? 0 : ends_[part - 1];
    const int64_t here = std::min(count, ends_[part] - begin);
    Widen(width_, parts_[part] + (begin - part_begin) * static_cast<int64_t>(width_), here, out);
    begin += here;
    out += here;
    count -= here;
    ++part;
  }
}

}  // namespace lodestar
