// SPDX-License-Identifier: Apache-2.0

// SimulatedFileSystem: a disk in memory that a test can crash, fill up, and make fail.
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
  kRead,  // also reading names, and mapping
  kCreateDirectory,
  kRename,
  kRemove,  // once for each file and directory
  kSyncDirectory,
};

// A disk in memory. Use it on one thread only. The same calls always give the same content of the
// disk, to the bit. It has no links and no file times.
class SimulatedFileSystem final : public storage::FileSystem {
 public:
  // Called before each operation. If it returns an error, the operation returns that error and
  // changes nothing.
  using FaultHook = std::function<absl::Status(FileOperation operation, const std::string& path)>;

  SimulatedFileSystem();
  ~SimulatedFileSystem() override;

  // Sets the hook. Null means no faults. To simulate that a process is killed, set a hook that
  // refuses every operation. To simulate the next process, set null: it finds everything that was
  // written.
  void SetFaultHook(FaultHook hook) { hook_ = std::move(hook); }
  // Sets the size of the disk. A write beyond this size writes the bytes that fit, and returns
  // ResourceExhausted.
  void SetCapacity(int64_t num_bytes) { capacity_bytes_ = num_bytes; }
  // Simulates a power failure, after which open files cannot be written any more:
  // - Of bytes that were not synced, the disk keeps none, all, or the first ones. Zeros or garbage
  //   may replace the lost bytes.
  // - Each change of a name that was not synced may be lost. If one is kept, all earlier changes of
  //   the same name are kept also.
  // - A rename is never half done.
  void Crash(std::mt19937_64& chance);

  absl::StatusOr<std::unique_ptr<storage::WritableFile>> Create(const std::string& path,
                                                                IfExists if_exists) override;
  absl::StatusOr<storage::FileBytes> Map(const std::string& path) override;
  absl::Status Read(const std::string& path,
                    absl::FunctionRef<absl::Status(absl::string_view block)> take) override;
  absl::StatusOr<std::unique_ptr<storage::HeldFile>> Hold(const std::string& path) override;
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

  // The directory that contains a path (null if it does not exist), and the name in it.
  struct Place {
    Node* directory = nullptr;
    std::string name;
  };

  absl::Status Ask(FileOperation operation, const std::string& path) const;
  Place Locate(const std::string& path) const;
  std::shared_ptr<Node> Find(const std::string& path) const;
  // Returns the content of a file for reading. `action` is for errors.
  absl::StatusOr<std::shared_ptr<const std::string>> ContentsOf(const std::string& path,
                                                                absl::string_view action) const;
  absl::Status RemoveEntry(Node& directory, const std::string& name, const std::string& path);
  absl::Status Append(Node& file, const std::string& path, absl::string_view bytes);

  FaultHook hook_;
  int64_t capacity_bytes_ = std::numeric_limits<int64_t>::max();
  int64_t used_bytes_ = 0;  // bytes of files that have a name
  int64_t num_crashes_ = 0;
  const std::shared_ptr<Node> root_;
};

}  // namespace lodestar
