// SPDX-License-Identifier: Apache-2.0

// CoordinatorJournal is the journal of the coordinator's state. A whole record has all of the
// state. Other records have only the changes since the record before. Records before the last whole
// one are not needed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/file_system.h"
#include "server/durability/journal/journal_reader.h"
#include "server/durability/journal/journal_writer.h"

namespace lodestar::host {

// The class is thread-safe.
class CoordinatorJournal {
 public:
  // A new segment begins once the current one is larger than both kSegmentBytes and
  // kWholesPerSegment times the last whole record. So whole records are a small part of all bytes
  // that are written. Segments before the last whole record are removed.
  static constexpr int64_t kSegmentBytes = 4 << 20;
  static constexpr int64_t kWholesPerSegment = 4;

  struct Contents {
    journal::JournalEnd end;
    // Records that are in the journal, in order. Empty means that there are none.
    std::vector<std::string> records;
  };
  // Reads the journal in a folder, which may be missing. Errors: those of ReadJournal().
  static absl::StatusOr<Contents> Read(storage::FileSystem& file_system, const std::string& folder);

  // Opens the journal for writing. Errors: those of JournalWriter::Create().
  static absl::StatusOr<std::unique_ptr<CoordinatorJournal>> Create(
      journal::JournalWriter::Config config, journal::JournalWriter::Deps deps,
      int64_t segment_bytes = kSegmentBytes);

  // Returns true if the next record must be whole: it is the first one, or begins a segment.
  bool wants_whole() const;
  // Writes a record. Requires `is_whole` if wants_whole(). Calls `durable` once the record is on
  // disk; the calls come in the order of the records. Returns the record's number. Only one thread
  // at a time may call Keep().
  uint64_t Keep(std::string record, bool is_whole, journal::JournalWriter::Durable durable);
  // Must be called about once a second.
  void Tick() { writer_->Tick(); }
  // Returns OK, or why no record becomes durable at present.
  absl::Status trouble() const { return writer_->trouble(); }
  const std::string& folder() const { return folder_; }

 private:
  CoordinatorJournal(std::string folder, std::unique_ptr<journal::JournalWriter> writer,
                     int64_t segment_bytes)
      : folder_(std::move(folder)), max_segment_bytes_(segment_bytes), writer_(std::move(writer)) {}

  const std::string folder_;
  const int64_t max_segment_bytes_;
  const std::unique_ptr<journal::JournalWriter> writer_;
  // Approximate size of the segment. 0 means that nothing was written.
  int64_t segment_bytes_ = 0;
  int64_t whole_bytes_ = 0;  // size of the last whole record
};

}  // namespace lodestar::host
