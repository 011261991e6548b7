// SPDX-License-Identifier: Apache-2.0

// Reads what a journal holds after its process has ended, normally or not.
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

// A record that may not be on disk, because no later record says that it is durable. It may be lost
// if this machine crashes.
struct UnprovenRecord {
  uint64_t sequence = 0;
  std::string text;
  std::string payload;
};

// A JournalEnd says where the next writer goes on.
struct JournalEnd {
  std::vector<JournalSegment> segments;  // oldest first
  uint64_t last_sequence = 0;            // 0 means that there is no record
  std::vector<UnprovenRecord> unproven;  // the last records of the journal
  // Message for operators about bytes after the last record, which were not acknowledged. Empty
  // means that there are none.
  std::string torn = {};
};

// Passes the records to `take` in order. If two segments have a record of the same number, the
// record in the later segment counts: the writer has written it again after an error. After an
// error, the records that were passed before must not be used. Errors: DataLoss, naming file and
// byte (records are missing that were on disk once); those of the disk; the first error of `take`.
absl::StatusOr<JournalEnd> ReadJournal(
    storage::FileSystem& file_system, const std::string& folder,
    absl::FunctionRef<absl::Status(const JournalRecord& record)> take);

// Returns the number of the last record that was on disk according to the bytes of a watermark.
// Returns 0 if the bytes are no watermark.
uint64_t DurableByWatermark(absl::string_view bytes);

}  // namespace lodestar::journal
