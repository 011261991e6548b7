// PatientFileSystem: a disk that is read again when it answers with an error. One bad answer, as of
// a file server that is being started again, must neither fail a job that starts nor send it back
// to an older checkpoint. What is written is not tried again: who writes has a next time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/file_system.h"

namespace lodestar {

// As thread-safe as the disk.
class PatientFileSystem : public FileSystem {
 public:
  static constexpr int kTries = 4;
  static constexpr absl::Duration kFirstPause =
      absl::Milliseconds(100);  // 4 times as long each time

  // Both outlive the object.
  PatientFileSystem(FileSystem* disk, Clock* clock) : disk_(disk), clock_(clock) {}

  // Errors of the readings: what is not there, not allowed or not a file at once, others after
  // kTries, between which they block; the log is told of each.
  absl::StatusOr<FileBytes> Map(const std::string& path) override;
  absl::Status Read(const std::string& path,
                    absl::FunctionRef<absl::Status(absl::string_view block)> take) override;
  absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t max_bytes) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override;

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path,
                                                       IfExists if_exists) override {
    return disk_->Create(path, if_exists);
  }
  absl::StatusOr<std::unique_ptr<HeldFile>> Hold(const std::string& path) override {
    return disk_->Hold(path);
  }
  absl::Status CreateDirectories(const std::string& path) override {
    return disk_->CreateDirectories(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return disk_->Rename(from, to);
  }
  absl::Status RemoveAll(const std::string& path) override { return disk_->RemoveAll(path); }
  absl::Status SyncDirectory(const std::string& path) override {
    return disk_->SyncDirectory(path);
  }
  bool Exists(const std::string& path) override { return disk_->Exists(path); }
  bool IsDirectory(const std::string& path) override { return disk_->IsDirectory(path); }
  bool AreSame(const std::string& path, const std::string& other) override {
    return disk_->AreSame(path, other);
  }
  std::optional<int64_t> FreeBytes(const std::string& path) override {
    return disk_->FreeBytes(path);
  }
  std::optional<absl::Duration> AgeOf(const std::string& path) override {
    return disk_->AgeOf(path);
  }

 private:
  absl::Status ReadAgain(absl::FunctionRef<absl::Status()> read);
  template <typename Result>
  absl::StatusOr<Result> Answer(absl::FunctionRef<absl::StatusOr<Result>()> read);

  FileSystem* const disk_;
  Clock* const clock_;
};

}  // namespace lodestar
