// The disk as a dependency: code that writes or reads checkpoints takes a FileSystem.
// SimulatedFileSystem (common/testing) is a disk that crashes, tears what was not synced and fills
// up. Errors are those of common/runtime/file_io.h: they name the path and the system's text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace lodestar {

// A file that is written from front to back, without a buffer. Not thread-safe.
class WritableFile {
 public:
  virtual ~WritableFile() = default;  // closes; removes nothing
  // After an error some of `bytes` may be in the file.
  virtual absl::Status Append(absl::string_view bytes) = 0;
  // Returns once the disk has the bytes; whether it has the name, see SyncDirectory().
  virtual absl::Status Sync() = 0;
  // Once, and last.
  virtual absl::Status Close() = 0;
};

// The bytes of a finished file, read-only and aligned for floats. Copies share them.
struct FileBytes {
  std::string path;
  absl::Span<const uint8_t> bytes;
  std::shared_ptr<const void> memory;  // what `bytes` lie in
};

// A file that stays readable when its name is removed or given to another file. Not thread-safe.
class HeldFile {
 public:
  virtual ~HeldFile() = default;
  // Whether the path that the file was held by still leads to this file. Errors: NotFound naming
  // the path if it does not; those of the disk.
  virtual absl::Status CheckName() = 0;
  // Hands over the file as it is now, as FileSystem::Read() does.
  virtual absl::Status Read(absl::FunctionRef<absl::Status(absl::string_view block)> take) = 0;
};

// Thread-safe unless an implementation says otherwise. Names that were created, renamed or removed
// survive a crash of the machine only once their directory was synced, bytes once their file was.
class FileSystem {
 public:
  enum class IfExists { kTruncate, kFail, kGoOn };

  virtual ~FileSystem() = default;

  // With kGoOn, what is appended goes behind what is there. Errors also: AlreadyExists with kFail,
  // for links that lead nowhere, too.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path,
                                                               IfExists if_exists) = 0;
  // Takes memory only as far as it is read. An empty file is fine. Errors of this and of the calls
  // that follow also: InvalidArgument for what is not a regular file.
  virtual absl::StatusOr<FileBytes> Map(const std::string& path) = 0;
  // Hands over the file from front to back, in blocks that `take` must not keep, so that it takes
  // the memory of one block. Errors also: the first of `take`, which ends it.
  virtual absl::Status Read(const std::string& path,
                            absl::FunctionRef<absl::Status(absl::string_view block)> take) = 0;
  // Takes one descriptor until the result is gone.
  virtual absl::StatusOr<std::unique_ptr<HeldFile>> Hold(const std::string& path) = 0;
  // Errors also: InvalidArgument if there are more than `max_bytes`.
  virtual absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t max_bytes) = 0;

  // Creates the directory with those above it. It is no error if the directory is there.
  virtual absl::Status CreateDirectories(const std::string& path) = 0;
  // The names in a directory, in any order; none if there is no such directory.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& directory) = 0;
  // Both paths are in the same directory. This replaces a file that is there, and a directory if it
  // is empty.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // A file, or a directory with all that is in it. No error if there is nothing. After an error
  // some of it may be there.
  virtual absl::Status RemoveAll(const std::string& path) = 0;
  virtual absl::Status SyncDirectory(const std::string& path) = 0;

  virtual bool Exists(const std::string& path) = 0;
  virtual bool IsDirectory(const std::string& path) = 0;
  // Whether both paths lead to the same file or directory, which is there.
  virtual bool AreSame(const std::string& path, const std::string& other) = 0;
  // What can still be written to the disk of `path`; nothing if it does not tell.
  virtual std::optional<int64_t> FreeBytes(const std::string& path) = 0;
  // How long ago a file was written; nothing if it does not tell.
  virtual std::optional<absl::Duration> AgeOf(const std::string& path) = 0;

  // The machine's; lives for the whole process.
  static FileSystem& Real();
};

// `path`, or the first of PATH.2, PATH.3 and so on that is not there.
std::string UnusedPath(FileSystem& file_system, absl::string_view path);

// Writes a new file front to back through a buffer and sums it up on the way. Not thread-safe.
class SequentialFileWriter {
 public:
  // Creates or truncates. `file_system` outlives the writer.
  static absl::StatusOr<SequentialFileWriter> Create(FileSystem& file_system,
                                                     const std::string& path);
  // Errors also: AlreadyExists, for links that lead nowhere, too.
  static absl::StatusOr<SequentialFileWriter> CreateNew(FileSystem& file_system,
                                                        const std::string& path);

  const std::string& path() const { return path_; }

  absl::Status Append(const void* data, size_t size);
  absl::Status Append(absl::string_view text) { return Append(text.data(), text.size()); }
  // Writes out what is buffered; with `sync` waits until the disk has it; closes. After an error
  // the content of the file is undefined: write it anew.
  absl::Status Finish(bool sync);

  int64_t num_bytes() const { return num_bytes_; }  // appended
  uint32_t crc32c() const { return crc32c_; }       // of all that was appended

 private:
  SequentialFileWriter(std::string path, std::unique_ptr<WritableFile> file);
  absl::Status Flush();

  std::string path_;
  std::unique_ptr<WritableFile> file_;
  int64_t num_bytes_ = 0;
  uint32_t crc32c_ = 0;
  std::string buffer_;
};

}  // namespace lodestar
