// The journal of the coordinator's memory. A record is whole, or has the changes since the record
// before it: records before the last whole one are of no use.
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

// Thread-safe.
class CoordinatorJournal {
 public:
  // A new segment is begun once the current one is larger than kSegmentBytes, and larger than
  // kWholesPerSegment times its first record. Whole records are then a small part of what is
  // written. Segments before the last whole record are removed.
  static constexpr int64_t kSegmentBytes = 4 << 20;
  static constexpr int64_t kWholesPerSegment = 4;

  struct Contents {
    journal::JournalEnd end;
    std::vector<std::string> records;  // The last ones, in order; empty if there is none.
  };
  // Reads the journal in a folder, which may be missing. Errors: those of ReadJournal().
  static absl::StatusOr<Contents> Read(FileSystem& file_system, const std::string& folder);

  // Errors: those of JournalWriter::Create().
  static absl::StatusOr<std::unique_ptr<CoordinatorJournal>> Create(
      journal::JournalWriter::Config config, journal::JournalWriter::Deps deps,
      int64_t segment_bytes = kSegmentBytes);

  // Whether the next record must be whole: it is the first one, or begins a segment.
  bool wants_whole() const;
  // Writes a record down. Requires `is_whole` if wants_whole(). Calls `durable` once the record is
  // on disk; the calls come in the order of the records. Returns the record's number. Not
  // thread-safe with itself.
  uint64_t Keep(std::string record, bool is_whole, journal::JournalWriter::Durable durable);
  // To be called every second or so.
  void Tick() { writer_->Tick(); }
  // OK, or why no record becomes durable at present.
  absl::Status trouble() const { return writer_->trouble(); }
  const std::string& folder() const { return folder_; }

 private:
  CoordinatorJournal(std::string folder, std::unique_ptr<journal::JournalWriter> writer,
                     int64_t segment_bytes)
      : folder_(std::move(folder)), max_segment_bytes_(segment_bytes), writer_(std::move(writer)) {}

  const std::string folder_;
  const int64_t max_segment_bytes_;
  const std::unique_ptr<journal::JournalWriter> writer_;
  // The approximate size of the segment. 0 means that nothing was kept.
  int64_t segment_bytes_ = 0;
  int64_t whole_bytes_ = 0;  // The size of the last whole record.
};

}  // namespace lodestar::host
