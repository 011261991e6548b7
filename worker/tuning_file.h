// SPDX-License-Identifier: Apache-2.0

// TuningFile is the file of --tuning_file. It keeps what devices have chosen by measuring, so that
// later runs choose the same. Workers of one machine may share it. A damaged file ends no worker:
// the log says what is wrong, and the devices measure again.
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
  // Maximum time that a worker waits at its end while other processes write the file.
  static constexpr absl::Duration kPatience = absl::Seconds(2);

  // `clock` must outlive the object.
  TuningFile(std::string path, Clock* clock, logging::ChangeLogger::Sink sink = logging::LogLine);

  // Returns the text with which a device has to be made: the content of the file, or an empty text.
  // If the file cannot be used, logs the reason.
  std::string TextForDevice();
  // Logs which parts of the file `device` does not use, and why.
  void Tell(const kernels::Device& device);
  // Adds the choices that `device` has made since the last call to the file. Waits for up to
  // `patience` while another process writes the file. If the choices cannot be written, the next
  // call writes them. Errors are logged. If `patience` is zero, a file that another process writes
  // is not an error.
  void Keep(const kernels::Device& device, absl::Duration patience);

  // Returns the content of the file. Empty means that there is no file. Errors: FailedPrecondition
  // if the text does not come from MergeTuning(); InvalidArgument if the file is not a regular file
  // or is too long; those of files.
  absl::StatusOr<std::string> Read() const;
  // Replaces the content `kept` of the file by merge(kept). The file is replaced as a whole or not
  // at all, and changes that another process makes meanwhile are not lost. Errors: those of Read(),
  // after which the file is unchanged; Unavailable after `patience`; those of files.
  absl::Status Update(absl::FunctionRef<std::string(absl::string_view kept)> merge,
                      absl::Duration patience) const;

 private:
  const std::string path_;
  Clock* const clock_;
  logging::ChangeLogger logger_;
  // The choices of each device when they were last written.
  std::map<const kernels::Device*, std::string> written_;
};

}  // namespace lodestar::worker
