// TuningFile is the file of --tuning_file. It has what devices have chosen by measuring, so that
// later runs choose the same. Workers of one machine may share it. If something is wrong with the
// file, no worker ends: the log says what is wrong, and the devices measure again.
#pragma once

#include <map>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/logging/logging.h"
#include "common/runtime/clock.h"
#include "kernels/device.h"

namespace lodestar::worker {

class TuningFile {
 public:
  // How long a worker waits, at its end, while other processes write the file.
  static constexpr absl::Duration kPatience = absl::Seconds(2);

  // `clock` must outlive the object.
  TuningFile(std::string path, Clock* clock, ChangeLogger::Sink sink = LogLine);

  // Returns the text that a device is to be made with: the contents of the file, or an empty text.
  // If the file cannot be used, the log says why.
  std::string TextForDevice();
  // Logs which parts of the file `device` does not use, and why.
  void Tell(const kernels::Device& device);
  // Adds to the file what `device` has chosen since the last call. Waits for up to `patience` while
  // another process writes the file. Choices that could not be written are written by the next
  // call. The log tells errors, but not that another process wrote the file if `patience` is zero.
  void Keep(const kernels::Device& device, absl::Duration patience);

  // Returns the contents of the file, or an empty text if there is no file. Errors:
  // FailedPrecondition if the text does not come from MergeTuning(); InvalidArgument if the file is
  // no regular file or too long; those of files.
  absl::StatusOr<std::string> Read() const;
  // Replaces the contents of the file by what `merge` makes of them. The file is replaced as a
  // whole or not at all, and what another process writes meanwhile is not lost. Errors: those of
  // Read(), after which the file is as before; Unavailable after `patience`; those of files.
  absl::Status Update(absl::FunctionRef<std::string(absl::string_view kept)> merge,
                      absl::Duration patience) const;

 private:
  const std::string path_;
  Clock* const clock_;
  ChangeLogger logger_;
  // What each device had chosen when its choices were last written.
  std::map<const kernels::Device*, std::string> written_;
};

}  // namespace lodestar::worker
