// SPDX-License-Identifier: Apache-2.0

// FileSystem is the interface through which code writes and reads checkpoints. SimulatedFileSystem
// (common/testing) implements it with a disk that crashes, damages data that was not synced, and
// fills up. Errors are those of common/runtime/file_io.h: they name the path and the system's text.
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

namespace lodestar::storage {

// A file that is written from front to back, without a buffer. Not thread-safe.
class WritableFile {
 public:
  virtual ~WritableFile() = default;  // closes the file; removes nothing
  // Appends `bytes`. After an error a part of them may be in the file.
  virtual absl::Status Append(absl::string_view bytes) = 0;
  // Blocks until the bytes are on disk. The file's name is on disk only after SyncDirectory().
  virtual absl::Status Sync() = 0;
  // Closes the file. Must be called once, after all other calls.
  virtual absl::Status Close() = 0;
};

// The bytes of a finished file, read-only and aligned for floats. Copies of this object share the
// bytes.
struct FileBytes {
  std::string path;
  absl::Span<const uint8_t> bytes;
  std::shared_ptr<const void> memory;  // owns `bytes`
};

// An open file, which stays readable when its name is removed or given to another file. Not
// thread-safe.
class HeldFile {
 public:
  virtual ~HeldFile() = default;
  // Checks that the path given to Hold() still leads to this file. Errors: NotFound naming the
  // path, if the path leads to another file or to none; those of the disk.
  virtual absl::Status CheckName() = 0;
  // Reads the file's current content as FileSystem::Read() does.
  virtual absl::Status Read(absl::FunctionRef<absl::Status(absl::string_view block)> take) = 0;
};

// A file system. Thread-safe unless an implementation says otherwise. New, renamed and removed
// names survive a crash of the machine only after their directory was synced. Bytes survive only
// after their file was synced.
class FileSystem {
 public:
  enum class IfExists { kTruncate, kFail, kGoOn };

  virtual ~FileSystem() = default;

  // Opens a file for writing, and creates it if there is none. `if_exists` says what happens to an
  // existing file:
  // - kTruncate removes its content.
  // - kFail returns AlreadyExists. It does so also if the path is a link that leads nowhere.
  // - kGoOn keeps its content. New bytes are appended.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path,
                                                               IfExists if_exists) = 0;
  // Maps a file, so that only the parts that are read take memory. An empty file is allowed. Errors
  // also: InvalidArgument if the path is not a regular file. Read(), Hold() and ReadWholeFile()
  // have this error also.
  virtual absl::StatusOr<FileBytes> Map(const std::string& path) = 0;
  // Reads a file from front to back and passes each block to `take`, which must not keep it. Needs
  // only the memory of one block. Errors also: the first error of `take`, which ends the reading.
  virtual absl::Status Read(const std::string& path,
                            absl::FunctionRef<absl::Status(absl::string_view block)> take) = 0;
  // Opens a file. Uses one descriptor until the result is destroyed.
  virtual absl::StatusOr<std::unique_ptr<HeldFile>> Hold(const std::string& path) = 0;
  // Returns the whole content. Errors also: InvalidArgument if the file has more than `max_bytes`.
  virtual absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t max_bytes) = 0;

  // Creates the directory and all directories above it. If the directory exists already, that is
  // not an error.
  virtual absl::Status CreateDirectories(const std::string& path) = 0;
  // Returns the names in a directory, in any order. If the directory does not exist, returns an
  // empty list.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& directory) = 0;
  // Renames a file or directory. Both paths are in the same directory. Replaces an existing file,
  // or an existing directory if it is empty.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // Removes a file, or a directory with everything in it. If nothing is there, that is not an
  // error. After an error a part may remain.
  virtual absl::Status RemoveAll(const std::string& path) = 0;
  virtual absl::Status SyncDirectory(const std::string& path) = 0;

  virtual bool Exists(const std::string& path) = 0;
  virtual bool IsDirectory(const std::string& path) = 0;
  // Returns true if both paths lead to the same existing file or directory.
  virtual bool AreSame(const std::string& path, const std::string& other) = 0;
  // Returns how many bytes can still be written to the disk of `path`, or nullopt if that is not
  // known.
  virtual std::optional<int64_t> FreeBytes(const std::string& path) = 0;
  // Returns the time since the file was written, or nullopt if that is not known.
  virtual std::optional<absl::Duration> AgeOf(const std::string& path) = 0;

  // Returns the machine's file system, which lives for the whole process.
  static FileSystem& Real();
};

// Returns `path` if nothing exists there. Otherwise appends ".2", ".3" and so on to `path`, and
// returns the first result at which nothing exists.
std::string UnusedPath(FileSystem& file_system, absl::string_view path);

// Writes a new file front to back through a buffer and computes its checksum. Not thread-safe.
class SequentialFileWriter {
 public:
  // Creates or truncates the file. `file_system` must outlive the writer.
  static absl::StatusOr<SequentialFileWriter> Create(FileSystem& file_system,
                                                     const std::string& path);
  // Creates the file. Errors also: AlreadyExists (anything has this path, even a link that leads
  // nowhere).
  static absl::StatusOr<SequentialFileWriter> CreateNew(FileSystem& file_system,
                                                        const std::string& path);

  const std::string& path() const { return path_; }

  absl::Status Append(const void* data, size_t size);
  absl::Status Append(absl::string_view text) { return Append(text.data(), text.size()); }
  // Writes the buffer, waits until the disk has all bytes if `sync`, and closes the file. After an
  // error the content of the file is undefined, and the file must be written again.
  absl::Status Finish(bool sync);

  int64_t num_bytes() const { return num_bytes_; }  // number of bytes appended
  uint32_t crc32c() const { return crc32c_; }       // checksum of all appended bytes

 private:
  SequentialFileWriter(std::string path, std::unique_ptr<WritableFile> file);
  absl::Status Flush();

  std::string path_;
  std::unique_ptr<WritableFile> file_;
  int64_t num_bytes_ = 0;
  uint32_t crc32c_ = 0;
  std::string buffer_;
};

}  // namespace lodestar::storage
