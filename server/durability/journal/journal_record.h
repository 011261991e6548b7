// SPDX-License-Identifier: Apache-2.0

// The format of records in the segments of a journal.
//
// A segment is a file of records. A record is a head of kJournalHeadBytes, a text and a payload. It
// is filled up with zeros to a multiple of 8 bytes. The head:
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
// All numbers are little-endian. If a record is missing, the heads that were written later show
// why:
// - One of them has a `durable` at or above the record's number: the file is damaged.
// - None of them has: a crash may have cut the file. The record was never acknowledged.
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
// Maximum sizes that a valid head may have. They limit the memory that a reader allocates because
// of a damaged head.
inline constexpr uint32_t kMaxJournalTextBytes = 1 << 30;
inline constexpr uint64_t kMaxJournalPayloadBytes = uint64_t{1} << 34;

// Returns the head and the text. The caller must append the payload and JournalPadding(). Requires
// that the sizes are within the limits above.
std::string FormatJournalHead(const JournalRecord& record);
// Returns the zeros that must follow the payload.
absl::string_view JournalPadding(const JournalRecord& record);

// JournalParser reads one segment from front to back, in blocks of any size. It keeps at most one
// record and one block in memory.
class JournalParser {
 public:
  // Receives a record. If it returns an error, reading ends.
  using Take = absl::FunctionRef<absl::Status(const JournalRecord& record)>;

  // Passes complete records to `take`. After the first bytes that are not a record, passes no more
  // records and only reads `durable` of later heads. Errors: the first error of `take`.
  absl::Status Feed(absl::string_view block, Take take);

  // Returns the position in the segment of the first bytes that are not a record. If all bytes so
  // far are records, returns the number of bytes.
  int64_t sound_bytes() const { return sound_bytes_; }
  // Returns true if all bytes fed so far are complete records.
  bool is_whole() const { return !is_broken_ && buffer_.empty(); }
  // Returns the highest `durable` of all heads, including heads of incomplete records.
  uint64_t durable() const { return durable_; }

 private:
  // Removes one record from the buffer, or kAlignment bytes that begin no record. Returns false if
  // more bytes are needed.
  bool TakeOne(Take take, absl::Status* status);

  std::string buffer_;
  size_t begin_ = 0;  // position in the buffer of the first byte that is not taken yet
  int64_t sound_bytes_ = 0;
  bool is_broken_ = false;
  uint64_t durable_ = 0;
};

}  // namespace lodestar::journal
