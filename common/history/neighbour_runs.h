// SPDX-License-Identifier: Apache-2.0

// Other runs that a run can be compared with: folders with a history file
// (common/history/run_history.h) in the run's own folder or in its parent folder. The folders are
// only read. They may belong to any user: symbolic links are not followed, and a file that is not a
// history is reported as such. Servers that write there at the same time are not disturbed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/history/run_history.h"

namespace lodestar::history {

struct NeighbourList {
  struct Run {
    std::string name;        // name of the run's folder; OWN/NAME for a folder inside the run's own
    absl::Time written;      // when its history was last written
    std::string unreadable;  // one sentence that says why it cannot be compared; empty if it can

    friend bool operator==(const Run&, const Run&) = default;
  };

  std::string folder;              // parent folder of the runs
  std::vector<Run> runs;           // the run written last comes first
  std::vector<std::string> notes;  // one sentence for each kind of thing that was left out
};

// Lists and reads the other runs. Thread-safe. Each call reads the disk and blocks for that time.
class NeighbourRuns {
 public:
  static constexpr size_t kMaxRuns = 64;  // maximum number of runs in the list
  // Maximum number of entries that are examined in one folder.
  static constexpr int kMaxEntries = 4096;
  static constexpr size_t kMaxPoints = 512;  // maximum number of points per curve
  static constexpr int64_t kMaxFileBytes = 16 << 20;

  // `run_folder` is the folder of the run itself, which is not in the list.
  explicit NeighbourRuns(std::string run_folder) : run_folder_(std::move(run_folder)) {}

  // Returns the list. Errors: those of files, for the run's folder or its parent folder.
  absl::StatusOr<NeighbourList> List() const;

  // Returns the curves, without events, of the run with this name in the list. Errors: NotFound (no
  // run of that name is in the list); FailedPrecondition (the history is not a regular file, or is
  // too large); Unavailable (the history is being written, or was left half written); DataLoss (the
  // history is damaged, or is not a file of ours); those of files.
  absl::StatusOr<RunHistory> Read(const std::string& name) const;

 private:
  const std::string run_folder_;
};

// Returns the whole history of the run in that folder. Like NeighbourRuns, it writes and locks
// nothing. It does not repair a history that a killed server has left half written. Errors:
// NotFound (there is no history); those of NeighbourRuns::Read().
absl::StatusOr<RunHistory> ReadHistoryUntouched(const std::string& run_folder);

}  // namespace lodestar::history
