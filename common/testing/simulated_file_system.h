// SimulatedFileSystem: a disk in memory that a test crashes, fills up and lets fail.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/storage/file_system.h"

namespace lodestar {

enum class FileOperation {
  kCreate,
  kAppend,
  kSync,
  kRead,  // also of names, and mapping
  kCreateDirectory,
  kRename,
  kRemove,  // once for each file and directory
  kSyncDirectory,
};

// For one thread. The same calls give the same disk, to the bit. It has no links and no times of
// files.
class SimulatedFileSystem final : public FileSystem {
 public:
  // Asked before each operation. An error is that of the operation, which then changes nothing.
  using FaultHook = std::function<absl::Status(FileOperation operation, const std::string& path)>;

  SimulatedFileSystem();
  ~SimulatedFileSystem() override;

  // Null: no faults. A process that was killed is a hook that refuses everything; then it is the
  // next process's, with all that was written.
  void SetFaultHook(FaultHook hook) { hook_ = std::move(hook); }
  // A write beyond it takes what fits and is ResourceExhausted.
  void SetCapacity(int64_t num_bytes) { capacity_bytes_ = num_bytes; }
  // The power goes and comes back. Of bytes that were not synced the disk has none, all, or the
  // first ones, with nothing, zeros or garbage after them. Every change of a name in a directory
  // that was not synced since is there or not, but one that needs an earlier one (of the same name)
  // is not there without it; a rename is not half there. Files that were open cannot be written any
  // more.
  void Crash(std::mt19937_64& chance);

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path,
                                                       IfExists if_exists) override;
  absl::StatusOr<FileBytes> Map(const std::string& path) override;
  absl::Status Read(const std::string& path,
                    absl::FunctionRef<absl::Status(absl::string_view block)> take) override;
  absl::StatusOr<std::unique_ptr<HeldFile>> Hold(const std::string& path) override;
  absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t max_bytes) override;
  absl::Status CreateDirectories(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status RemoveAll(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;
  bool Exists(const std::string& path) override;
  bool IsDirectory(const std::string& path) override;
  bool AreSame(const std::string& path, const std::string& other) override;
  std::optional<int64_t> FreeBytes(const std::string& path) override;
  std::optional<absl::Duration> AgeOf(const std::string& /*path*/) override { return std::nullopt; }

 private:
  struct Node;
  class OpenFile;
  class Held;

  // The directory that a path lies in (null if there is none) and the name in it.
  struct Place {
    Node* directory = nullptr;
    std::string name;
  };

  absl::Status Ask(FileOperation operation, const std::string& path) const;
  Place Locate(const std::string& path) const;
  std::shared_ptr<Node> Find(const std::string& path) const;
  // The contents of a file for reading. `action`: for errors.
  absl::StatusOr<std::shared_ptr<const std::string>> ContentsOf(const std::string& path,
                                                                absl::string_view action) const;
  absl::Status RemoveEntry(Node& directory, const std::string& name, const std::string& path);
  absl::Status Append(Node& file, const std::string& path, absl::string_view bytes);

  FaultHook hook_;
  int64_t capacity_bytes_ = std::numeric_limits<int64_t>::max();
  int64_t used_bytes_ = 0;  // of files that have a name
  int64_t num_crashes_ = 0;
  const std::shared_ptr<Node> root_;
};

}  // namespace lodestar
