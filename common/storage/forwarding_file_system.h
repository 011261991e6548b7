// SPDX-License-Identifier: Apache-2.0

// A FileSystem that forwards every call to another one. It is the base of classes that change only
// a few calls.
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
#include "common/storage/file_system.h"

namespace lodestar::storage {

// Forwards to `disk`. As thread-safe as `disk`.
class ForwardingFileSystem : public FileSystem {
 public:
  // `disk` must outlive this object.
  explicit ForwardingFileSystem(FileSystem* disk) : disk_(disk) {}

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path,
                                                       IfExists if_exists) override {
    return disk_->Create(path, if_exists);
  }
  absl::StatusOr<FileBytes> Map(const std::string& path) override { return disk_->Map(path); }
  absl::Status Read(const std::string& path,
                    absl::FunctionRef<absl::Status(absl::string_view block)> take) override {
    return disk_->Read(path, take);
  }
  absl::StatusOr<std::unique_ptr<HeldFile>> Hold(const std::string& path) override {
    return disk_->Hold(path);
  }
  absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t max_bytes) override {
    return disk_->ReadWholeFile(path, max_bytes);
  }
  absl::Status CreateDirectories(const std::string& path) override {
    return disk_->CreateDirectories(path);
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override {
    return disk_->List(directory);
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

 protected:
  FileSystem& disk() const { return *disk_; }

 private:
  FileSystem* const disk_;
};

}  // namespace lodestar::storage
