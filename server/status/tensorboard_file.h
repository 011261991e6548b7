// SPDX-License-Identifier: Apache-2.0

// TensorBoardFile is a file in --tensorboard_dir. It has scalars by round, in TensorBoard's format
// (TensorFlow's event.proto and TFRecord). Each process has a file of its own. A process may begin
// at a round that earlier files have already, or the job may return to such a round. Then the file
// tells TensorBoard to drop that round and all later ones from the earlier files.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/runtime/ids.h"
#include "server/coordinator/announcement.h"

namespace lodestar::status {

// Pairs of tag and value.
using TensorBoardScalars = std::vector<std::pair<std::string, double>>;

// Returns the values of a round to show, without values that are unknown or not finite.
TensorBoardScalars ScalarsOf(const rounds::RoundSummary& summary);

// Return one record each: for the beginning of a file, for a round, and for a restart, after which
// rounds from `next_round` on come again.
std::string TensorBoardHeader(absl::Time now);
std::string TensorBoardRound(Round round, absl::Time time, const TensorBoardScalars& scalars);
std::string TensorBoardRestart(Round next_round, absl::Time now);

// The class is not thread-safe.
class TensorBoardFile {
 public:
  // Creates a new file in `folder`, which is created if it does not exist. Errors: InvalidArgument
  // (`folder` is a checkpoint or lies in one); those of files.
  static absl::StatusOr<TensorBoardFile> Create(const std::string& folder, absl::Time now);

  TensorBoardFile(TensorBoardFile&& other) noexcept;
  TensorBoardFile& operator=(TensorBoardFile&&) = delete;
  ~TensorBoardFile();

  const std::string& path() const { return path_; }
  // Writes a record to the file at once. If the file was removed, creates it again first. After an
  // error the file is as it was, and the next record may succeed.
  absl::Status Append(absl::string_view record);

 private:
  TensorBoardFile(std::string path, absl::Time created_at)
      : path_(std::move(path)), created_at_(created_at) {}
  // Creates the file, and its folder if needed.
  absl::Status Open();
  absl::Status Write(absl::string_view record);

  std::string path_;
  absl::Time created_at_;
  int descriptor_ = -1;
  int64_t num_bytes_ = 0;  // size of the complete records
};

}  // namespace lodestar::status
