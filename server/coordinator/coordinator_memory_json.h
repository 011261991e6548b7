// CoordinatorMemory as JSON: the records of the coordinator's journal.
//
// A whole record has all of the memory. Each other record has what has changed since the record
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

namespace lodestar {

// Returns one JSON object, in which every number is exact. If `memory` is not set, there is no
// memory that could be gone on with. `now` is the time of the coordinator whose memory it is. What
// lies before `now` lies as far before the time at which the memory is taken up. `journal_id` is
// the ID of the journal that it is for. 0 means that it is left out.
std::string CoordinatorMemoryToJson(const std::optional<CoordinatorMemory>& memory, absl::Time now,
                                    uint64_t journal_id = 0);

// Makes the records of one journal.
class MemoryRecords {
 public:
  struct Record {
    std::string text;  // A JSON object.
    bool is_whole = true;
  };

  // Returns the record of `memory` for the coordinator whose time is `now`. It is whole if
  // `must_be_whole`, or if this or the last record has no memory.
  Record Next(std::optional<CoordinatorMemory> memory, absl::Time now, uint64_t journal_id,
              bool must_be_whole);

 private:
  std::optional<CoordinatorMemory> last_;
  absl::Time whole_at_;  // The time of the last whole record.
};

// Returns the memory after the last of `records`, which begin at or before the last whole one, as
// it is for a coordinator whose time is `now`: the time since that record has not passed. Fields
// that are not known are passed over. Errors: DataLoss naming the field (not JSON, missing, of
// another type, out of range) or that no record is whole; Unimplemented (of a later version). Sets
// `journal_id`, if it is not null, to 0 if the last record has none.
absl::StatusOr<std::optional<CoordinatorMemory>> CoordinatorMemoryFromRecords(
    absl::Span<const std::string> records, absl::Time now, uint64_t* journal_id = nullptr);

}  // namespace lodestar
