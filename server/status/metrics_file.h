// SPDX-License-Identifier: Apache-2.0

// MetricsFile is the file of --metrics_out: one JSON line per committed round, in the order of the
// rounds.
// - If the job returns to an earlier point, for example after a crash, the lines of rounds that
//   come again are cut from the file.
// - If the file has lines of another run, it is renamed, and a new file is begun.
// - After a failed call all lines in the file are complete.
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

// The class is not thread-safe.
class MetricsFile {
 public:
  // Creates the file, or goes on after its last line. For `may_share` see LineFile::Open(). Errors:
  // InvalidArgument (the file holds something else); those of LineFile::Open().
  static absl::StatusOr<MetricsFile> Open(const std::string& path, bool may_share = false);

  struct Change {
    std::string text;  // message for the log; empty if nothing was done
    bool was_another_run = false;
    std::vector<rounds::RoundSummary> missing = {};  // rounds of last_rounds without a line
  };
  // Prepares the file for the rounds from `point` on. After an error the file is as it was. Errors:
  // those of files.
  absl::StatusOr<Change> GoOnFrom(const coordinator::RestoredPoint& point);

  // Appends a line. `line` begins as MetricsLine() does, and has no line end. After an error the
  // file is as it was.
  absl::Status Append(absl::string_view line) { return file_.Append(line); }

 private:
  explicit MetricsFile(output::LineFile file) : file_(std::move(file)) {}
  // Renames the file and begins a new one under its name. Returns the new name of the old file.
  absl::StatusOr<std::string> SetAside();

  output::LineFile file_;
  bool is_of_this_run_ = false;  // true: its lines were found to belong to this run; stays true
};

}  // namespace lodestar::status
