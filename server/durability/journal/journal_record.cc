// SPDX-License-Identifier: Apache-2.0

#include "server/durability/journal/journal_record.h"

#include <algorithm>
#include <optional>

#include "common/crc32c/crc32c.h"
#include "common/runtime/check.h"

namespace lodestar::journal {
namespace {

constexpr uint32_t kMagic = 0x314a534c;  // "LSJ1"
constexpr size_t kAlignment = 8;

template <typename Integer>
void Put(std::string& bytes, size_t offset, Integer value) {
  for (size_t i = 0; i < sizeof(value); ++i) {
    bytes[offset + i] = static_cast<char>(value >> (8 * i));
  }
}

template <typename Integer>
Integer Get(absl::string_view bytes, size_t offset) {
  Integer value = 0;
  for (size_t i = 0; i < sizeof(value); ++i) {
    value |= static_cast<Integer>(static_cast<uint8_t>(bytes[offset + i])) << (8 * i);
  }
  return value;
}

size_t PaddingOf(uint64_t body_bytes) {
  return (kAlignment - body_bytes % kAlignment) % kAlignment;
}

struct Head {
  uint64_t sequence = 0;
  uint64_t durable = 0;
  uint32_t text_bytes = 0;
  uint32_t body_crc32c = 0;
  uint64_t payload_bytes = 0;

  uint64_t body_bytes() const { return text_bytes + payload_bytes; }
};

// Parses a record head. Returns nothing if the bytes are no record head.
std::optional<Head> ParseHead(absl::string_view bytes) {
  if (Get<uint32_t>(bytes, 0) != kMagic) return std::nullopt;
  if (Get<uint32_t>(bytes, 4) != crc32c::Crc32c(bytes.data() + 8, kJournalHeadBytes - 8)) {
    return std::nullopt;
  }
  const Head head = {.sequence = Get<uint64_t>(bytes, 8),
                     .durable = Get<uint64_t>(bytes, 16),
                     .text_bytes = Get<uint32_t>(bytes, 24),
                     .body_crc32c = Get<uint32_t>(bytes, 28),
                     .payload_bytes = Get<uint64_t>(bytes, 32)};
  if (head.text_bytes > kMaxJournalTextBytes || head.payload_bytes > kMaxJournalPayloadBytes) {
    return std::nullopt;
  }
  return head;
}

}  // namespace

std::string FormatJournalHead(const JournalRecord& record) {
  LODESTAR_CHECK(record.text.size() <= kMaxJournalTextBytes &&
                 record.payload.size() <= kMaxJournalPayloadBytes)
      << "the record is too large: it has " << record.text.size() << " bytes of text and "
      << record.payload.size() << " bytes of payload";
  std::string head(kJournalHeadBytes, '\0');
  Put(head, 0, kMagic);
  Put(head, 8, record.sequence);
  Put(head, 16, record.durable);
  Put(head, 24, static_cast<uint32_t>(record.text.size()));
  Put(head, 28,
      crc32c::Crc32c(record.payload.data(), record.payload.size(),
                     crc32c::Crc32c(record.text.data(), record.text.size())));
  Put(head, 32, static_cast<uint64_t>(record.payload.size()));
  Put(head, 4, crc32c::Crc32c(head.data() + 8, kJournalHeadBytes - 8));
  head.append(record.text.data(), record.text.size());
  return head;
}

absl::string_view JournalPadding(const JournalRecord& record) {
  static constexpr char kZeros[kAlignment] = {};
  return {kZeros, PaddingOf(record.text.size() + record.payload.size())};
}

absl::Status JournalParser::Feed(absl::string_view block, Take take) {
  buffer_.append(block.data(), block.size());
  absl::Status status;
  while (status.ok() && TakeOne(take, &status)) {
  }
  buffer_.erase(0, begin_);
  begin_ = 0;
  return status;
}

bool JournalParser::TakeOne(Take take, absl::Status* status) {
  const absl::string_view bytes = absl::string_view(buffer_).substr(begin_);
  if (bytes.size() < kJournalHeadBytes) return false;
  const std::optional<Head> head = ParseHead(bytes);
  if (head.has_value()) durable_ = std::max(durable_, head->durable);
  if (!head.has_value() || is_broken_) {
    is_broken_ = true;
    begin_ += kAlignment;
    return true;
  }
  const uint64_t whole_bytes =
      kJournalHeadBytes + head->body_bytes() + PaddingOf(head->body_bytes());
  if (bytes.size() < whole_bytes) return false;
  const char* const body = bytes.data() + kJournalHeadBytes;
  if (crc32c::Crc32c(body, head->body_bytes()) != head->body_crc32c) {
    is_broken_ = true;
    begin_ += kAlignment;
    return true;
  }
  begin_ += whole_bytes;
  sound_bytes_ += static_cast<int64_t>(whole_bytes);
  *status = take({.sequence = head->sequence,
                  .durable = head->durable,
                  .text = absl::string_view(body, head->text_bytes),
                  .payload = {reinterpret_cast<const std::byte*>(body) + head->text_bytes,
                              head->payload_bytes}});
  return true;
}

}  // namespace lodestar::journal
