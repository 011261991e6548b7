// The file of --metrics_out: a line of JSON per committed round, in the order of the rounds.
//
// Where training goes back, or a server goes on after a crash, rounds come again: their lines are
// cut from the file. Lines of another run are never mixed with those of this one: the file that has
// them is renamed. Whatever fails leaves whole lines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/output/output_file.h"
#include "server/coordinator/announcement.h"

namespace lodestar::status {

// Not thread-safe.
class MetricsFile {
 public:
  // Creates it, or goes on behind what is there. Errors: InvalidArgument for a file of something
  // else; those of LineFile::Open(), also for `may_share`.
  static absl::StatusOr<MetricsFile> Open(const std::string& path, bool may_share = false);

  struct Change {
    std::string text;  // for the log; empty if there was nothing to do
    bool was_another_run = false;
    std::vector<RoundSummary> missing = {};  // of point.last_rounds: to be appended
  };
  // Before the lines of rounds from `point` on. Errors: those of files; then the file is as it was.
  absl::StatusOr<Change> GoOnFrom(const RestoredPoint& point);

  // `line` without its end; begins as MetricsLine() does. On an error the file stays as it was.
  absl::Status Append(absl::string_view line) { return file_.Append(line); }

 private:
  explicit MetricsFile(LineFile file) : file_(std::move(file)) {}
  // Another one comes under its name. Returns the name that it has then.
  absl::StatusOr<std::string> SetAside();

  LineFile file_;
  bool is_of_this_run_ = false;  // as seen once; whatever this process goes back to afterwards
};

}  // namespace lodestar::status
