// SPDX-License-Identifier: Apache-2.0

#include "server/firewall/http2_refusal.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lodestar::firewall {
namespace {

constexpr size_t kFrameHeaderBytes = 9;
// Maximum number of bytes that a client may send in one frame, and in all. A correct client stays
// below these limits, because this server never enlarges the flow-control windows of HTTP/2.
constexpr size_t kMaxFrameBytes = 16 << 10;
constexpr size_t kMaxBytes = 256 << 10;

enum FrameType : uint8_t { kHeaders = 1, kSettings = 4, kGoAwayFrame = 7 };
constexpr uint8_t kAck = 0x1;         // flag of kSettings
constexpr uint8_t kEndStream = 0x1;   // flag of kHeaders
constexpr uint8_t kEndHeaders = 0x4;  // flag of kHeaders

void AppendBigEndian(std::string& bytes, uint32_t value, int num_bytes) {
  for (int i = num_bytes - 1; i >= 0; --i) bytes.push_back(static_cast<char>(value >> (8 * i)));
}

// Format: [length, 3 bytes | type | flags | stream, 4 bytes | payload]
std::string Frame(FrameType type, uint8_t flags, uint32_t stream, absl::string_view payload) {
  std::string frame;
  AppendBigEndian(frame, static_cast<uint32_t>(payload.size()), 3);
  frame.push_back(static_cast<char>(type));
  frame.push_back(static_cast<char>(flags));
  AppendBigEndian(frame, stream, 4);
  return absl::StrCat(frame, payload);
}

// Appends a string in the format of HPACK (RFC 7541, 5.2), without Huffman coding.
void AppendString(std::string& block, absl::string_view text) {
  constexpr size_t kInPrefix = 127;
  size_t length = text.size();
  if (length < kInPrefix) {
    block.push_back(static_cast<char>(length));
  } else {
    block.push_back(static_cast<char>(kInPrefix));
    for (length -= kInPrefix; length >= 128; length /= 128) {
      block.push_back(static_cast<char>(length % 128 + 128));
    }
    block.push_back(static_cast<char>(length));
  }
  absl::StrAppend(&block, text);
}

void AppendHeader(std::string& block, absl::string_view name, absl::string_view value) {
  constexpr char kLiteralNotIndexed = 0;
  block.push_back(kLiteralNotIndexed);
  AppendString(block, name);
  AppendString(block, value);
}

}  // namespace

std::string Http2Refusal::OnBytes(absl::string_view bytes) {
  std::string answer;
  if (!has_greeted_) answer = Frame(kSettings, 0, 0, "");
  has_greeted_ = true;
  bytes_taken_ += bytes.size();
  is_broken_ |= bytes_taken_ > kMaxBytes;
  while (!bytes.empty() && !is_broken_) {
    if (bytes_to_skip_ > 0) {
      const size_t skipped = std::min(bytes.size(), bytes_to_skip_);
      bytes.remove_prefix(skipped);
      bytes_to_skip_ -= skipped;
      continue;
    }
    const size_t taken = std::min(bytes.size(), kFrameHeaderBytes - header_.size());
    absl::StrAppend(&header_, bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    if (header_.size() == kFrameHeaderBytes) OnFrame(answer);
  }
  return answer;
}

void Http2Refusal::OnFrame(std::string& answer) {
  const auto number = [this](size_t first, size_t num_bytes) {
    uint32_t value = 0;
    for (size_t i = first; i < first + num_bytes; ++i) {
      value = value << 8 | static_cast<uint8_t>(header_[i]);
    }
    return value;
  };
  bytes_to_skip_ = number(0, 3);
  const uint32_t type = number(3, 1);
  const uint32_t flags = number(4, 1);
  const uint32_t stream = number(5, 4);
  header_.clear();
  is_broken_ = bytes_to_skip_ > kMaxFrameBytes;
  if (is_broken_) return;
  if (type == kSettings && (flags & kAck) == 0) answer += Frame(kSettings, kAck, 0, "");
  if (type != kHeaders || stream <= last_stream_) return;
  last_stream_ = stream;
  ++num_calls_;
  constexpr char kStatus200 = '\x88';  // index in the static table
  std::string block(1, kStatus200);
  AppendHeader(block, "content-type", "application/grpc");
  AppendHeader(block, "grpc-status", absl::StrCat(static_cast<int>(status_.code())));
  AppendHeader(block, "grpc-message", status_.message());
  answer += Frame(kHeaders, kEndStream | kEndHeaders, stream, block);
}

std::string Http2Refusal::GoAway() const {
  std::string payload;
  AppendBigEndian(payload, last_stream_, 4);
  AppendBigEndian(payload, static_cast<uint32_t>(code_), 4);
  return absl::StrCat(has_greeted_ ? "" : Frame(kSettings, 0, 0, ""),
                      Frame(kGoAwayFrame, 0, 0, absl::StrCat(payload, status_.message())));
}

}  // namespace lodestar::firewall
