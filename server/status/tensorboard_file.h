// The files of --tensorboard_dir: scalars by round, as TensorBoard reads them (TensorFlow's
// event.proto and TFRecord). Each process has a file of its own; where it begins, or the job goes
// back, TensorBoard is told to forget what earlier files have of rounds from there on.
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

// Tag and value.
using TensorBoardScalars = std::vector<std::pair<std::string, double>>;

// What of a round is shown: without what is unknown or not finite.
TensorBoardScalars ScalarsOf(const RoundSummary& summary);

// One record each: at the beginning of a file; of a round; and that rounds from `next_round` on
// come again.
std::string TensorBoardHeader(absl::Time now);
std::string TensorBoardRound(Round round, absl::Time time, const TensorBoardScalars& scalars);
std::string TensorBoardRestart(Round next_round, absl::Time now);

// Not thread-safe.
class TensorBoardFile {
 public:
  // A new file in `folder`, which is made if it is not there. Errors: InvalidArgument if `folder`
  // is a checkpoint or lies in one; those of files.
  static absl::StatusOr<TensorBoardFile> Create(const std::string& folder, absl::Time now);

  TensorBoardFile(TensorBoardFile&& other) noexcept;
  TensorBoardFile& operator=(TensorBoardFile&&) = delete;
  ~TensorBoardFile();

  const std::string& path() const { return path_; }
  // At once in the file. After an error it is as it was, and the next one may succeed.
  absl::Status Append(absl::string_view record);

 private:
  TensorBoardFile(std::string path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_;
  int64_t num_bytes_ = 0;  // whole records
};

}  // namespace lodestar::status
