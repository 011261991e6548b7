// CoordinatorMemory as JSON, for the coordinator's journal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/coordinator/coordinator_memory.h"

namespace lodestar {

// One JSON object; every number is exact. Nothing: there is no memory that could be gone on with.
// `now`: of the coordinator whose memory it is; what lies before it does so as far from then on.
// `journal_id`: of the journal that it is for. 0 means that it is left out.
std::string CoordinatorMemoryToJson(const std::optional<CoordinatorMemory>& memory, absl::Time now,
                                    uint64_t journal_id = 0);

// The memory as it is for a coordinator whose time is `now`: that in between has not passed. Fields
// that are not known are passed over. Errors: DataLoss naming the field (not JSON, missing, of
// another type, out of range); Unimplemented (of a later version). Sets `journal_id`, if it is not
// null, to 0 if the text has none.
absl::StatusOr<std::optional<CoordinatorMemory>> CoordinatorMemoryFromJson(
    absl::string_view text, absl::Time now, uint64_t* journal_id = nullptr);

}  // namespace lodestar
