// A disk that knows the checksums of what was written through it. Two sides can then be compared
// without reading checkpoints of gigabytes again whenever a connection was cut.
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

// Thread-safe if the disk below is. A file that is summed up must be written through this disk.
class SummedFileSystem final : public ForwardingFileSystem {
 public:
  // `disk` is not owned.
  explicit SummedFileSystem(FileSystem* disk) : ForwardingFileSystem(disk) {}

  // Returns the sum of a whole file. It reads the file, unless all of it was written through this
  // disk and synced since, or it was there before and has been read. Errors: those of the disk.
  absl::StatusOr<FileSum> Sum(const std::string& path) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the disk below is known to have all of a file for good: it was written and synced
  // through this disk.
  bool IsSynced(const std::string& path) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns files below `folder` that are missing although they were not removed through this disk.
  // They were written and synced through it, or read.
  std::vector<std::string> Gone(const std::string& folder) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path,
                                                       IfExists if_exists) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status RemoveAll(const std::string& path) override;

 private:
  class File;

  struct Entry {
    // The writer that has opened the file last. 0 means that the file was only read.
    uint64_t writer = 0;
    // The sum of what the disk has for good. Nothing means that the file has to be read.
    std::optional<FileSum> sum;
  };

  void SetSum(const std::string& path, uint64_t writer, const std::optional<FileSum>& sum)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Forgets a file, or all that is in a directory.
  void Forget(const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  uint64_t last_writer_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);  // The keys are paths.
};

}  // namespace lodestar::replica
