// SPDX-License-Identifier: Apache-2.0

#include "server/durability/journal/journal_reader.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/status_macros.h"

namespace lodestar::journal {
namespace {

// Returns the number of the first record in the segment. Returns 0 if no record in it is complete.
absl::StatusOr<uint64_t> FirstSequence(storage::FileSystem& file_system, const std::string& path) {
  uint64_t first = 0;
  JournalParser parser;
  const absl::Status enough = absl::CancelledError("enough");
  const absl::Status read = file_system.Read(path, [&](absl::string_view block) {
    return parser.Feed(block, [&](const JournalRecord& record) {
      first = record.sequence;
      return enough;
    });
  });
  if (read != enough) RETURN_IF_ERROR(read);
  return first;
}

// Returns the `durable` of the watermark file. Returns 0 if there is no watermark.
absl::StatusOr<uint64_t> ReadWatermark(storage::FileSystem& file_system,
                                       const std::string& folder) {
  const std::string path = JournalWatermarkPath(folder);
  if (!file_system.Exists(path)) return 0;
  std::string bytes;
  RETURN_IF_ERROR(file_system.Read(path, [&bytes](absl::string_view block) {
    absl::StrAppend(&bytes, block);
    return absl::OkStatus();
  }));
  return DurableByWatermark(bytes);
}

}  // namespace

uint64_t DurableByWatermark(absl::string_view bytes) {
  JournalParser parser;
  const absl::Status parsed =
      parser.Feed(bytes, [](const JournalRecord&) { return absl::OkStatus(); });
  return parsed.ok() ? parser.durable() : 0;
}

absl::StatusOr<JournalEnd> ReadJournal(
    storage::FileSystem& file_system, const std::string& folder,
    absl::FunctionRef<absl::Status(const JournalRecord& record)> take) {
  JournalEnd end;
  ASSIGN_OR_RETURN(const std::vector<uint64_t> numbers, ListJournalSegments(file_system, folder));
  for (const uint64_t number : numbers) {
    ASSIGN_OR_RETURN(const uint64_t first,
                     FirstSequence(file_system, JournalSegmentPath(folder, number)));
    end.segments.push_back({number, first});
  }
  // `durable` is the highest record number up to which all records were once on disk. `broken_at`
  // says where the first missing record was expected.
  ASSIGN_OR_RETURN(uint64_t durable, ReadWatermark(file_system, folder));
  std::string broken_at;
  std::deque<UnprovenRecord> unproven;
  for (auto segment = end.segments.begin(); segment != end.segments.end(); ++segment) {
    const std::string path = JournalSegmentPath(folder, segment->number);
    // From this record number on, a later segment has the records.
    uint64_t limit = std::numeric_limits<uint64_t>::max();
    for (auto later = segment + 1; later != end.segments.end(); ++later) {
      if (later->first_sequence != 0) limit = std::min(limit, later->first_sequence);
    }
    JournalParser parser;
    RETURN_IF_ERROR(file_system.Read(path, [&](absl::string_view block) {
      return parser.Feed(block, [&](const JournalRecord& record) {
        if (record.sequence >= limit) return absl::OkStatus();
        if (end.last_sequence != 0 && record.sequence != end.last_sequence + 1) {
          if (broken_at.empty()) broken_at = absl::StrCat(path, " at byte 0");
          return absl::OkStatus();
        }
        end.last_sequence = record.sequence;
        broken_at.clear();
        while (!unproven.empty() && unproven.front().sequence <= record.durable) {
          unproven.pop_front();
        }
        unproven.push_back({record.sequence, std::string(record.text),
                            std::string(reinterpret_cast<const char*>(record.payload.data()),
                                        record.payload.size())});
        return take(record);
      });
    }));
    durable = std::max(durable, parser.durable());
    if (!parser.is_whole() && broken_at.empty()) {
      broken_at = absl::StrCat(path, " at byte ", parser.sound_bytes());
    }
  }
  if (durable > end.last_sequence) {
    return absl::DataLossError(absl::StrCat("journal ", broken_at.empty() ? folder : broken_at,
                                            " is damaged: record ", end.last_sequence + 1,
                                            " was complete on disk (as all records up to ", durable,
                                            "), but cannot be read now"));
  }
  std::move(unproven.begin(), unproven.end(), std::back_inserter(end.unproven));
  if (!broken_at.empty()) {
    end.torn =
        absl::StrCat("journal ", broken_at, " ends with an incomplete record, which is ignored");
  }
  return end;
}

}  // namespace lodestar::journal
