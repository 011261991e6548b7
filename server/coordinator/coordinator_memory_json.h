// SPDX-License-Identifier: Apache-2.0

// Converts a CoordinatorMemory to JSON and back, for the records of the coordinator's journal.
//
// A whole record has all of the memory. Any other record has only what has changed since the record
// before it, so that the bytes of a round do not grow with the number of workers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/coordinator/coordinator_memory.h"

namespace lodestar::coordinator {

// Returns `memory` as one JSON object, in which every number is exact. If `memory` is not set, the
// object says that a later process has to start without a memory. `now` is the present time of the
// coordinator. Each time is stored as its distance from `now`. The reader adds this distance to its
// own present time. `journal_id` is the ID of the journal that the record is for. 0 means that the
// ID is left out.
std::string CoordinatorMemoryToJson(const std::optional<CoordinatorMemory>& memory, absl::Time now,
                                    uint64_t journal_id = 0);

// Makes the records of one journal. Remembers the last memory, so that the next record can have
// only the changes.
class MemoryRecords {
 public:
  struct Record {
    std::string text;  // A JSON object.
    bool is_whole = true;
  };

  // Returns the next record, with `memory` as it is at the coordinator's time `now`. The record is
  // whole if `must_be_whole` is true, if `memory` is not set, or if the previous record has no
  // memory.
  Record Next(std::optional<CoordinatorMemory> memory, absl::Time now, uint64_t journal_id,
              bool must_be_whole);

 private:
  std::optional<CoordinatorMemory> last_;
  absl::Time whole_at_;  // The time of the last whole record.
};

// Returns the memory as it was at the last of `records`. `records` must contain the last whole
// record and all records after it. Shifts all times, as if the last record had been written at
// `now`. Ignores unknown fields. Sets `journal_id`, if it is not null, to the ID in the last
// record. 0 means that the record has no ID. Errors:
// - DataLoss: A field is not JSON, missing, of another type or out of range. Or no record is whole.
// - Unimplemented: A later version wrote the records.
absl::StatusOr<std::optional<CoordinatorMemory>> CoordinatorMemoryFromRecords(
    absl::Span<const std::string> records, absl::Time now, uint64_t* journal_id = nullptr);

}  // namespace lodestar::coordinator
