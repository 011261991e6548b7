// Reads what a journal holds when its process has ended, however it has.
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

// A record that no later one calls durable: its process may have ended before the disk had it, and
// then this machine has it only until it ends, too.
struct UnprovenRecord {
  uint64_t sequence = 0;
  std::string text;
  std::string payload;
};

// Where the next writer goes on.
struct JournalEnd {
  std::vector<JournalSegment> segments;  // oldest first
  uint64_t last_sequence = 0;            // 0 means that there is no record
  std::vector<UnprovenRecord> unproven;  // the last ones
  // What lies behind the last record, and was not acknowledged, for people. Empty: nothing.
  std::string torn = {};
};

// Hands over the records in order. Where a later segment begins with a number that an earlier one
// has, too, the writer began anew there after an error: the later one counts. Errors: DataLoss,
// naming file and byte, if records are missing that were on disk once; those of the disk and the
// first of `take`. What was handed over before an error is not to be used then.
absl::StatusOr<JournalEnd> ReadJournal(
    FileSystem& file_system, const std::string& folder,
    absl::FunctionRef<absl::Status(const JournalRecord& record)> take);

// Up to which record a journal was on disk, as the bytes of its watermark say; 0 if they say
// nothing.
uint64_t DurableByWatermark(absl::string_view bytes);

}  // namespace lodestar::journal
