// SPDX-License-Identifier: Apache-2.0

// TuningFile is the file of --tuning_file. It stores the choices that devices have made by
// measuring, so that later runs make the same choices. Workers of one machine may share it. A
// damaged file is not fatal: the log says what is wrong, and the devices measure again.
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
  // Maximum time that a worker waits at its end for other processes that write the file.
  static constexpr absl::Duration kPatience = absl::Seconds(2);

  // `clock` must outlive the object.
  TuningFile(std::string path, Clock* clock, logging::ChangeLogger::Sink sink = logging::LogLine);

  // Returns the text that must be passed to a device when it is made: the content of the file, or
  // an empty text. If the file cannot be used, logs the reason.
  std::string TextForDevice();
  // Logs which parts of the file `device` does not use, and why.
  void Tell(const kernels::Device& device);
  // Adds the choices of `device` to the file, if they have changed since this object last wrote
  // them. If another process writes the file, waits for up to `patience`. If the write fails, the
  // next call tries again, and the error is logged. Unavailable is not logged if `patience` is
  // zero.
  void Keep(const kernels::Device& device, absl::Duration patience);

  // Returns the content of the file. Empty means that there is no file. Errors: FailedPrecondition
  // if the text does not come from MergeTuning(); InvalidArgument if the file is not a regular file
  // or is too long; those of files.
  absl::StatusOr<std::string> Read() const;
  // Replaces the file's content `kept` by merge(kept). After an error the file is as before. No
  // change of another process is lost. Errors: those of Read(); Unavailable (after `patience`);
  // those of files.
  absl::Status Update(absl::FunctionRef<std::string(absl::string_view kept)> merge,
                      absl::Duration patience) const;

 private:
  const std::string path_;
  Clock* const clock_;
  logging::ChangeLogger logger_;
  // The choices of each device that were last written.
  std::map<const kernels::Device*, std::string> written_;
};

}  // namespace lodestar::worker
