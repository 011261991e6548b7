// How records lie in the segments of a journal.
//
// A segment is a file of records, one after the other, each filled up to a multiple of 8 bytes. A
// record is a head of kHeadBytes, a text and a payload:
//
//   offset  0  4 bytes  kMagic, which names the format's version
//           4  4        crc32c of bytes 8 to 47
//           8  8        sequence: numbers of records follow each other, over all segments
//          16  8        durable: what was on disk, up to this number, before this was written
//          24  4        bytes of the text
//          28  4        crc32c of text and payload
//          32  8        bytes of the payload
//          40  8        0
//
// all little-endian. `durable` tells damage from the end that a crash has torn: what no later
// record calls durable was not acknowledged.
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
// What a head may ask memory for.
inline constexpr uint32_t kMaxJournalTextBytes = 1 << 30;
inline constexpr uint64_t kMaxJournalPayloadBytes = uint64_t{1} << 34;

// Head and text, to which the payload and JournalPadding() are appended. Requires sizes within the
// limits.
std::string FormatJournalHead(const JournalRecord& record);
// The zeros that follow the record.
absl::string_view JournalPadding(const JournalRecord& record);

// Reads one segment from front to back, in blocks of any size. Takes the memory of one record.
class JournalParser {
 public:
  // Errors end the reading.
  using Take = absl::FunctionRef<absl::Status(const JournalRecord& record)>;

  // Hands over the records that are whole; after bytes that are none it looks on for heads, whose
  // `durable` counts. Errors: the first of `take`.
  absl::Status Feed(absl::string_view block, Take take);

  // Where the first bytes lie that are no record; the end of what was fed if there are none.
  int64_t sound_bytes() const { return sound_bytes_; }
  // Whether all that was fed is records.
  bool is_whole() const { return !is_broken_ && buffer_.empty(); }
  // The highest of all heads, also of records that are not whole.
  uint64_t durable() const { return durable_; }

 private:
  // Whether it has taken anything off the buffer.
  bool TakeOne(Take take, absl::Status* status);

  std::string buffer_;
  size_t begin_ = 0;  // of what is not taken yet, in the buffer
  int64_t sound_bytes_ = 0;
  bool is_broken_ = false;
  uint64_t durable_ = 0;
};

}  // namespace lodestar::journal
