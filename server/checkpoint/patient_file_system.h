// PatientFileSystem: a disk that is read again when it answers with an error. One bad answer, as of
// a file server that is being started again, must neither fail a job that starts nor send it back
// to an older checkpoint. What is written is not tried again: who writes has a next time.
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/runtime/clock.h"
#include "common/storage/forwarding_file_system.h"

namespace lodestar::checkpoint {

// As thread-safe as the disk.
class PatientFileSystem : public ForwardingFileSystem {
 public:
  static constexpr int kTries = 4;
  static constexpr absl::Duration kFirstPause =
      absl::Milliseconds(100);  // 4 times as long each time

  // Both outlive the object.
  PatientFileSystem(FileSystem* disk, Clock* clock) : ForwardingFileSystem(disk), clock_(clock) {}

  // Errors of the readings: what is not there, not allowed or not a file at once, others after
  // kTries, between which they block; the log is told of each.
  absl::StatusOr<FileBytes> Map(const std::string& path) override;
  absl::Status Read(const std::string& path,
                    absl::FunctionRef<absl::Status(absl::string_view block)> take) override;
  absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t max_bytes) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override;

 private:
  absl::Status ReadAgain(absl::FunctionRef<absl::Status()> read);
  template <typename Result>
  absl::StatusOr<Result> Answer(absl::FunctionRef<absl::StatusOr<Result>()> read);

  Clock* const clock_;
};

}  // namespace lodestar::checkpoint
