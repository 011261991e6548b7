// The runs of the same folder: what a run can be compared with. They are the folders with a history
// file (common/history/run_history.h) that lie where the folder of the run lies, and those in it.
// The folders are only read, and may be of any user: symbolic links are not followed, and a file
// that is no history is named as such. Servers that write there meanwhile do not notice it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/history/run_history.h"

namespace lodestar {

struct NeighbourList {
  struct Run {
    std::string name;        // of its folder; of one in the run's own: OWN/NAME
    absl::Time written;      // its history, last
    std::string unreadable;  // why it cannot be compared with, one sentence; empty: it can

    friend bool operator==(const Run&, const Run&) = default;
  };

  std::string folder;              // that they lie in
  std::vector<Run> runs;           // the one that was written last first
  std::vector<std::string> notes;  // on what was left out, a sentence each
};

// Thread-safe. Looks at the disk with each call, and blocks for that.
class NeighbourRuns {
 public:
  static constexpr size_t kMaxRuns = 64;     // the others are left out
  static constexpr int kMaxEntries = 4096;   // of one folder that are looked at
  static constexpr size_t kMaxPoints = 512;  // of each curve
  static constexpr int64_t kMaxFileBytes = 16 << 20;

  // The folder of the run, whose history is none of the list.
  explicit NeighbourRuns(std::string run_folder) : run_folder_(std::move(run_folder)) {}

  // Errors: those of files, of the folder of the run or the one around it.
  absl::StatusOr<NeighbourList> List() const;

  // The curves of a run of the list, by its name, without events. Errors: NotFound (none of that
  // name is in the list), FailedPrecondition (it is no regular file, or too large), Unavailable (it
  // is being written, or was left half written), DataLoss (it is damaged or none of ours); those of
  // files.
  absl::StatusOr<RunHistory> Read(const std::string& name) const;

 private:
  const std::string run_folder_;
};

// The history of the run in that folder, whole, read as those of NeighbourRuns are: nothing is
// written or locked, not even what a killed server has left half written is undone. Errors:
// NotFound (it has none), and those of NeighbourRuns::Read().
absl::StatusOr<RunHistory> ReadHistoryUntouched(const std::string& run_folder);

}  // namespace lodestar
