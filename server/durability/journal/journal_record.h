// SPDX-License-Identifier: Apache-2.0

// The format of records in the segments of a journal.
//
// A segment is a file of records, one after the other, each filled up to a multiple of 8 bytes. A
// record is a head of kHeadBytes, a text and a payload:
//
//   offset  0  4 bytes  kMagic, which names the format's version
//           4  4        crc32c of bytes 8 to 47
//           8  8        sequence: numbers of records follow each other, over all segments
//          16  8        durable: records up to this number were on disk before this was written
//          24  4        bytes of the text
//          28  4        crc32c of text and payload
//          32  8        bytes of the payload
//          40  8        0
//
// All numbers are little-endian. `durable` tells damage from a crash. If a later record calls a
// missing record durable, that is damage. If no later record does, a crash may have cut the end
// off, and the missing record was not acknowledged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lodestar::journal {

struct JournalRecord {
  uint64_t sequence = 0;
  uint64_t durable = 0;
  absl::string_view text;
  absl::Span<const std::byte> payload;
};

inline constexpr size_t kJournalHeadBytes = 48;
// Maximum sizes that a head may announce. A reader allocates as much memory as the head says, so
// damaged heads must not announce more.
inline constexpr uint32_t kMaxJournalTextBytes = 1 << 30;
inline constexpr uint64_t kMaxJournalPayloadBytes = uint64_t{1} << 34;

// Returns head and text. The payload and JournalPadding() must be appended. Requires sizes within
// the limits.
std::string FormatJournalHead(const JournalRecord& record);
// Returns the zeros that follow the record.
absl::string_view JournalPadding(const JournalRecord& record);

// JournalParser reads one segment from front to back, in blocks of any size. It needs memory for
// one record.
class JournalParser {
 public:
  // If the callback returns an error, reading ends.
  using Take = absl::FunctionRef<absl::Status(const JournalRecord& record)>;

  // Passes complete records to `take`. If bytes are no record, no later record is passed, but later
  // heads are still read for their `durable`. Errors: the first error of `take`.
  absl::Status Feed(absl::string_view block, Take take);

  // Returns the position of the first bytes that are no record, or the number of bytes fed if all
  // are records.
  int64_t sound_bytes() const { return sound_bytes_; }
  // Returns true if all bytes fed so far are complete records.
  bool is_whole() const { return !is_broken_ && buffer_.empty(); }
  // Returns the highest `durable` of all heads, including heads of incomplete records.
  uint64_t durable() const { return durable_; }

 private:
  // Takes a record or a bad byte from the buffer. Returns false if it took nothing.
  bool TakeOne(Take take, absl::Status* status);

  std::string buffer_;
  size_t begin_ = 0;  // position in the buffer of the first byte that is not taken yet
  int64_t sound_bytes_ = 0;
  bool is_broken_ = false;
  uint64_t durable_ = 0;
};

}  // namespace lodestar::journal
