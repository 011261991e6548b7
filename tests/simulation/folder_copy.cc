// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/folder_copy.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/runtime/check.h"
#include "common/runtime/status_macros.h"

namespace lodestar::simulation {
namespace {

absl::Status Write(SimulatedFileSystem& disk, const std::string& path, const std::string& bytes) {
  ASSIGN_OR_RETURN(const std::unique_ptr<storage::WritableFile> file,
                   disk.Create(path, storage::FileSystem::IfExists::kTruncate));
  RETURN_IF_ERROR(file->Append(bytes));
  RETURN_IF_ERROR(file->Sync());
  return file->Close();
}

}  // namespace

FolderCopy::FolderCopy(SimulatedFileSystem& disk, std::vector<std::string> folders)
    : folders_(std::move(folders)) {
  for (const std::string& folder : folders_) {
    const auto names = disk.List(folder);
    LODESTAR_CHECK(names.ok()) << names.status();
    for (const std::string& name : *names) {
      const std::string path = absl::StrCat(folder, "/", name);
      // Skips folders. They are left over from a process that tested the folder, and not part of a
      // journal.
      if (disk.IsDirectory(path)) continue;
      const auto bytes = disk.ReadWholeFile(path, int64_t{1} << 40);
      LODESTAR_CHECK(bytes.ok()) << bytes.status();
      files_[path] = *bytes;
    }
  }
}

void FolderCopy::PutBack(SimulatedFileSystem& disk) const {
  // The restored disk must have room for the folder.
  disk.SetCapacity(std::numeric_limits<int64_t>::max());
  for (const std::string& folder : folders_) {
    const auto names = disk.List(folder);
    LODESTAR_CHECK(names.ok()) << names.status();
    for (const std::string& name : *names) {
      const absl::Status removed = disk.RemoveAll(absl::StrCat(folder, "/", name));
      LODESTAR_CHECK(removed.ok()) << removed;
    }
  }
  for (const auto& [path, bytes] : files_) {
    const absl::Status written = Write(disk, path, bytes);
    LODESTAR_CHECK(written.ok()) << written;
  }
  for (const std::string& folder : folders_) {
    const absl::Status synced = disk.SyncDirectory(folder);
    LODESTAR_CHECK(synced.ok()) << synced;
  }
}

}  // namespace lodestar::simulation
