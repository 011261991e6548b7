// SPDX-License-Identifier: Apache-2.0

#include "server/checkpoint/patient_file_system.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"

namespace lodestar::checkpoint {
namespace {

// Returns true if the operation may succeed when it is tried again.
bool MayPass(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kPermissionDenied:
      return false;
    default:
      return true;
  }
}

}  // namespace

absl::Status PatientFileSystem::ReadAgain(absl::FunctionRef<absl::Status()> read) {
  absl::Status status = read();
  absl::Duration pause = kFirstPause;
  for (int tries = 1; MayPass(status); ++tries, pause *= 4) {
    if (tries == kTries) {
      return absl::Status(status.code(), absl::StrCat(status.message(), " (", tries, " times)"));
    }
    logging::LogWarn("{}; the server tries again in {}", status.message(),
                     absl::FormatDuration(pause));
    clock_->Sleep(pause);
    status = read();
  }
  return status;
}

template <typename Result>
absl::StatusOr<Result> PatientFileSystem::Answer(absl::FunctionRef<absl::StatusOr<Result>()> read) {
  absl::StatusOr<Result> answer = absl::UnknownError("");
  const absl::Status status = ReadAgain([&] {
    answer = read();
    return answer.status();
  });
  if (!status.ok()) return status;
  return answer;
}

absl::StatusOr<storage::FileBytes> PatientFileSystem::Map(const std::string& path) {
  return Answer<storage::FileBytes>([&] { return disk().Map(path); });
}

absl::StatusOr<std::string> PatientFileSystem::ReadWholeFile(const std::string& path,
                                                             int64_t max_bytes) {
  return Answer<std::string>([&] { return disk().ReadWholeFile(path, max_bytes); });
}

absl::StatusOr<std::vector<std::string>> PatientFileSystem::List(const std::string& directory) {
  return Answer<std::vector<std::string>>([&] { return disk().List(directory); });
}

absl::Status PatientFileSystem::Read(
    const std::string& path, absl::FunctionRef<absl::Status(absl::string_view block)> take) {
  size_t num_taken = 0;  // bytes passed to `take` in all tries
  absl::Status refused;  // error of `take`, which is no disk error
  const absl::Status status = ReadAgain([&] {
    size_t position = 0;
    const absl::Status read = disk().Read(path, [&](absl::string_view block) {
      const size_t begin = std::exchange(position, position + block.size());
      if (position <= num_taken) return absl::OkStatus();
      block.remove_prefix(std::max(num_taken, begin) - begin);
      num_taken = position;
      refused = take(block);
      return refused;
    });
    return refused.ok() ? read : absl::OkStatus();
  });
  return refused.ok() ? status : refused;
}

}  // namespace lodestar::checkpoint
