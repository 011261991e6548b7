// Files: whole small files, mapped files, sequential writing. What an operator names as an output
// is written through common/output_file.h. Errors name the path and the system's text; a full disk
// is ResourceExhausted, a missing file NotFound, a forbidden one PermissionDenied.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lodestar {

// "cannot <action> <path>: <text of error_number>", with the code that fits.
absl::Status ErrnoStatus(int error_number, absl::string_view action, absl::string_view path);

// Errors also: InvalidArgument if there are more than `max_bytes`.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t max_bytes);

// Writes all of `bytes`, however little the system takes at once. `name`: of the file, for errors.
// *written (may be null) counts what was written, also before an error.
absl::Status WriteAll(int descriptor, absl::string_view bytes, absl::string_view name,
                      size_t* written = nullptr);

// The folder that `path` lies in.
std::string DirectoryOf(const std::string& path);

// Makes names created in, or renamed into, the directory survive a crash.
absl::Status FsyncDirectory(const std::string& path);

// A file in memory, read-only, loaded by the system page by page. Movable.
// Cutting a mapped file short makes access to the lost part fatal (SIGBUS): map only finished
// files.
class MappedFile {
 public:
  // Errors also: InvalidArgument for what is not a regular file. An empty file is fine.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // Starts at a page boundary; valid as long as this object, also after it was moved.
  absl::Span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  // Tells the system that the file will be read once from front to back.
  void AdviseSequential() const;

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// Writes a new file front to back and sums it up on the way. Not thread-safe.
class SequentialFileWriter {
 public:
  // Creates or truncates.
  static absl::StatusOr<SequentialFileWriter> Create(const std::string& path);
  // Errors also: AlreadyExists, for links that lead nowhere, too.
  static absl::StatusOr<SequentialFileWriter> CreateNew(const std::string& path);

  const std::string& path() const { return path_; }

  SequentialFileWriter(SequentialFileWriter&& other) noexcept;
  SequentialFileWriter& operator=(SequentialFileWriter&& other) noexcept;
  ~SequentialFileWriter();  // closes; removes nothing

  absl::Status Append(const void* data, size_t size);
  absl::Status Append(absl::string_view text) { return Append(text.data(), text.size()); }
  // Writes out what is buffered; with `sync` waits until the disk has it (fdatasync); closes.
  // After an error the content of the file is undefined: write it anew.
  absl::Status Finish(bool sync);

  int64_t num_bytes() const { return num_bytes_; }  // appended
  uint32_t crc32c() const { return crc32c_; }       // of all that was appended

 private:
  SequentialFileWriter(std::string path, int descriptor);
  static absl::StatusOr<SequentialFileWriter> Open(const std::string& path, int flags);
  absl::Status Flush();

  std::string path_;
  int descriptor_ = -1;
  int64_t num_bytes_ = 0;
  uint32_t crc32c_ = 0;
  std::string buffer_;
};

}  // namespace lodestar
