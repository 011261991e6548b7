// A disk that knows the checksums of what was written through it, so that two sides can be compared
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
#include "common/forwarding_file_system.h"

namespace lodestar {

struct FileSum {
  int64_t num_bytes = 0;
  uint32_t crc32c = 0;
  friend bool operator==(const FileSum&, const FileSum&) = default;
};

// Thread-safe if the disk below is. Whoever writes a file that is summed up writes it through this.
class SummedFileSystem final : public ForwardingFileSystem {
 public:
  // Not owned.
  explicit SummedFileSystem(FileSystem* disk) : ForwardingFileSystem(disk) {}

  // Of a whole file. Reads it, unless all of it was written through this and synced since, or it
  // was there before and has been read. Errors: those of the disk.
  absl::StatusOr<FileSum> Sum(const std::string& path) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the disk has all of a file for good, as far as is known: it was written and synced
  // through this.
  bool IsSynced(const std::string& path) ABSL_LOCKS_EXCLUDED(mutex_);
  // Files below `folder` that were written and synced through this, or read, and are there no more,
  // although nobody has removed them through this.
  std::vector<std::string> Gone(const std::string& folder) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path,
                                                       IfExists if_exists) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status RemoveAll(const std::string& path) override;

 private:
  class File;

  struct Entry {
    uint64_t writer = 0;         // the last one that has opened the file; 0: it was only read
    std::optional<FileSum> sum;  // of what the disk has for good; nothing: it has to be read
  };

  void SetSum(const std::string& path, uint64_t writer, const std::optional<FileSum>& sum)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Of a file, or of all that is in a directory.
  void Forget(const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  uint64_t last_writer_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);  // by path
};

}  // namespace lodestar
