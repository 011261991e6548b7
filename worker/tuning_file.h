// The file of --tuning_file: what devices have chosen by measuring, so that later runs choose the
// same. Workers of one machine may share it. Nothing that is wrong with it ends a worker: the log
// says so, and what was to be read from it is measured.
#pragma once

#include <map>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/logging.h"
#include "kernels/device.h"

namespace lodestar {

class TuningFile {
 public:
  // At the end, for others that write it.
  static constexpr absl::Duration kPatience = absl::Seconds(2);

  // `clock` outlives it.
  TuningFile(std::string path, Clock* clock, ChangeLogger::Sink sink = LogLine);

  // What a device is to be made with: what is in the file, or nothing, and the log says why.
  std::string TextForDevice();
  // Tells what `device` does not use of it.
  void Tell(const Device& device);
  // Adds what `device` has chosen since. Where another process writes the file, waits for up to
  // `patience`; what is not written for that, or because of an error, which the log tells, is with
  // the next call.
  void Keep(const Device& device, absl::Duration patience);

  // Nothing if there is no file. Errors: FailedPrecondition for what is not of MergeTuning(),
  // InvalidArgument for what is no regular file or too long, those of files.
  absl::StatusOr<std::string> Read() const;
  // The file becomes what `merge` makes of what is in it, whole, or it stays; without the file of
  // another process being lost in between. Errors: those of Read(), which leave it as it is;
  // Unavailable after `patience`; those of files.
  absl::Status Update(absl::FunctionRef<std::string(absl::string_view kept)> merge,
                      absl::Duration patience) const;

 private:
  const std::string path_;
  Clock* const clock_;
  ChangeLogger logger_;
  std::map<const Device*, std::string> written_;  // what each device had chosen then
};

}  // namespace lodestar
