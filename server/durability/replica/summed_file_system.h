// SPDX-License-Identifier: Apache-2.0

// SummedFileSystem is a disk that remembers the checksums of the files written through it. So a
// server and its replica can be compared without reading all files again.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/storage/forwarding_file_system.h"

namespace lodestar::replica {

struct FileSum {
  int64_t num_bytes = 0;
  uint32_t crc32c = 0;
  friend bool operator==(const FileSum&, const FileSum&) = default;
};

// SummedFileSystem is thread-safe if the wrapped disk is. Files whose sums are asked for must be
// written only through it.
class SummedFileSystem final : public storage::ForwardingFileSystem {
 public:
  // `disk` is not owned.
  explicit SummedFileSystem(storage::FileSystem* disk) : storage::ForwardingFileSystem(disk) {}

  // Returns the checksum of a file. Reads the file unless the sum is known. It is known if the file
  // was read before, or was written as a whole through this disk and synced. Errors: those of the
  // disk.
  absl::StatusOr<FileSum> Sum(const std::string& path) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns true if the file was written through this disk and is synced.
  bool IsSynced(const std::string& path) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the files below `folder` that are missing, although this disk has not removed them.
  // Only files whose sums are known can be found.
  std::vector<std::string> Gone(const std::string& folder) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::StatusOr<std::unique_ptr<storage::WritableFile>> Create(const std::string& path,
                                                                IfExists if_exists) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status RemoveAll(const std::string& path) override;

 private:
  class File;

  struct Entry {
    // Number of the writer that opened the file last. 0 means that the file was only read.
    uint64_t writer = 0;
    // Checksum of the synced contents. Not set means that it is not known.
    std::optional<FileSum> sum;
  };

  void SetSum(const std::string& path, uint64_t writer, const std::optional<FileSum>& sum)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Forgets a file, or everything in a directory.
  void Forget(const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  uint64_t last_writer_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);  // the keys are paths
};

}  // namespace lodestar::replica
