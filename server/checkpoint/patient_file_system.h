// SPDX-License-Identifier: Apache-2.0

// PatientFileSystem is a disk that repeats reads after errors. When a file server restarts, a read
// may fail once. Without the repetition, a job would not start then, or would start from an older
// checkpoint. Writes are not repeated, because their callers try again anyway.
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

// Several threads may use an object if they may use its disk.
class PatientFileSystem : public storage::ForwardingFileSystem {
 public:
  static constexpr int kTries = 4;
  static constexpr absl::Duration kFirstPause =
      absl::Milliseconds(100);  // each pause is 4 times as long as the one before

  // `disk` and `clock` must outlive the object.
  PatientFileSystem(storage::FileSystem* disk, Clock* clock)
      : storage::ForwardingFileSystem(disk), clock_(clock) {}

  // Both functions read a file. They return some errors at once: the file is missing, may not be
  // read, or is no regular file. After other errors they try up to kTries times, block between
  // tries, and log each error.
  absl::StatusOr<storage::FileBytes> Map(const std::string& path) override;
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
