// SPDX-License-Identifier: Apache-2.0

#include "server/http2/http2_guard.h"

#include <algorithm>
#include <cstring>

namespace lodestar::http2 {
namespace {

constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

enum FrameType : uint8_t {
  kHeaders = 1,
  kResetStream = 3,
  kSettings = 4,
  kPing = 6,
  kContinuation = 9
};
constexpr uint8_t kEndHeaders = 0x4;  // flag of kHeaders and kContinuation

}  // namespace

bool Http2Guard::Allowance::Take(absl::Time now) {
  if (as_of != absl::InfinitePast() && now > as_of) {
    left = std::min(pace.burst, left + absl::ToDoubleSeconds(now - as_of) * pace.per_second);
  }
  as_of = now;
  if (left < 1) return false;
  left -= 1;
  return true;
}

Http2Guard::Http2Guard(const Config& config)
    : calls_(config.calls),
      resets_(config.resets),
      settings_(config.settings),
      pings_(config.pings) {}

bool Http2Guard::Allows(absl::string_view bytes, absl::Time now) {
  while (!bytes.empty() && !is_broken_) {
    if (preface_bytes_ < kPreface.size()) {
      const size_t size = std::min(bytes.size(), kPreface.size() - preface_bytes_);
      is_broken_ = bytes.substr(0, size) != kPreface.substr(preface_bytes_, size);
      preface_bytes_ += size;
      bytes.remove_prefix(size);
    } else if (bytes_to_skip_ > 0) {
      const size_t size = std::min(bytes.size(), bytes_to_skip_);
      bytes_to_skip_ -= size;
      bytes.remove_prefix(size);
    } else {
      const size_t size = std::min(bytes.size(), sizeof(header_) - header_size_);
      std::memcpy(header_ + header_size_, bytes.data(), size);
      header_size_ += size;
      bytes.remove_prefix(size);
      if (header_size_ == sizeof(header_)) is_broken_ = !OnFrame(now);
    }
  }
  return !is_broken_;
}

bool Http2Guard::OnFrame(absl::Time now) {
  header_size_ = 0;
  bytes_to_skip_ = size_t{header_[0]} << 16 | size_t{header_[1]} << 8 | header_[2];
  const uint8_t type = header_[3];
  const uint8_t flags = header_[4];
  switch (type) {
    case kHeaders:
    case kContinuation:
      header_bytes_ += bytes_to_skip_;
      if (header_bytes_ > kMaxHeaderBytes) return false;
      if ((flags & kEndHeaders) != 0) header_bytes_ = 0;
      return type == kContinuation || calls_.Take(now);
    case kResetStream:
      return resets_.Take(now);
    case kSettings:
      return settings_.Take(now);
    case kPing:
      return pings_.Take(now);
    default:
      return true;
  }
}

}  // namespace lodestar::http2
