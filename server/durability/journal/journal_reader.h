// SPDX-License-Identifier: Apache-2.0

// Reads a journal after the process that wrote it has ended or crashed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/storage/file_system.h"
#include "server/durability/journal/journal_record.h"
#include "server/durability/journal/journal_segments.h"

namespace lodestar::journal {

// A record that may be lost if this machine crashes: no later record says that it is on disk.
struct UnprovenRecord {
  uint64_t sequence = 0;
  std::string text;
  std::string payload;
};

// Says where the records of a journal end, so that a writer can append to them.
struct JournalEnd {
  std::vector<JournalSegment> segments;  // oldest first
  uint64_t last_sequence = 0;            // 0 means that there is no record
  std::vector<UnprovenRecord> unproven;  // the last records of the journal
  // Message for operators about bytes after the last record. No record in them was acknowledged.
  // Empty means that there are no such bytes.
  std::string torn = {};
};

// Passes the records to `take` in order. If two segments have a record of the same number, only the
// one of the later segment is passed. If ReadJournal() returns an error, the records must not be
// used. Errors: DataLoss (records that were once on disk are missing; names the place); those of
// the disk; the first error of `take`.
absl::StatusOr<JournalEnd> ReadJournal(
    storage::FileSystem& file_system, const std::string& folder,
    absl::FunctionRef<absl::Status(const JournalRecord& record)> take);

// Returns the number of the last record that was on disk, as the watermark `bytes` say. Returns 0
// if the bytes are not a watermark.
uint64_t DurableByWatermark(absl::string_view bytes);

}  // namespace lodestar::journal
