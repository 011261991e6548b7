// SPDX-License-Identifier: Apache-2.0

// Files of the machine: small files as a whole, large files in blocks, and mapped files. Output
// files that an operator names are written with common/output/output_file.h, checkpoints with
// common/storage/file_system.h. Errors name the path and give the system's text. Some of their
// codes:
// - ResourceExhausted: the disk is full, or the file is larger than FileSizeLimit().
// - NotFound: there is no such file.
// - PermissionDenied: this process may not use the file.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lodestar {

// Returns "cannot <action> <path>: <text of error_number>", with the status code that fits. For
// EACCES the text adds owner and mode of the file or folder that denies access. For ENOENT the text
// names a link in `path` that leads nowhere.
absl::Status ErrnoStatus(int error_number, absl::string_view action, absl::string_view path);

// Returns the maximum size in bytes of a file that this process writes (RLIMIT_FSIZE). nullopt
// means no limit. In programs that have called SetUpProgram(), a write beyond the limit fails with
// EFBIG.
std::optional<int64_t> FileSizeLimit();

// Checks that a file of `num_bytes`, still to be written, is within FileSizeLimit(). `file` names
// the file in the error, such as "the weights of shard 0". Errors: FailedPrecondition with both
// numbers.
absl::Status CheckFileSize(absl::string_view file, int64_t num_bytes);

// Checks that `path` leads to a file or folder. Errors: NotFound; PermissionDenied; other codes for
// other errors of the system.
absl::Status CheckIsThere(const std::string& path);

// Returns NotFound: the file at `path` was removed or replaced while this server was writing it.
absl::Status NameIsLost(absl::string_view path);

// Returns "a folder", "a FIFO", "a socket" or "a device" for anything but a regular file. `mode` is
// st_mode.
const char* FileKindName(unsigned mode);

// A file that is open for reading. The caller closes `descriptor`.
struct OpenedFile {
  int descriptor = -1;
  struct stat facts;
};

// Opens a file that a user has named, or that lies in a user's folder, without blocking. Only
// regular files are opened: opening a FIFO would wait for its writer, and opening a device may have
// effects. Errors also: InvalidArgument, which says what the path leads to, if that is not a
// regular file.
absl::StatusOr<OpenedFile> OpenRegularFile(const std::string& path);

// Reads the file from front to back, and calls `take` with each block. A block is valid only during
// that call. `name` is the name of the open file in errors. Errors also: those of
// OpenRegularFile(); the first error of `take`, after which nothing more is read.
absl::Status ReadBlocks(int descriptor, absl::string_view name,
                        absl::FunctionRef<absl::Status(absl::string_view block)> take);
absl::Status ReadBlocks(const std::string& path,
                        absl::FunctionRef<absl::Status(absl::string_view block)> take);

// Returns the whole content of the file. Errors also: InvalidArgument if the file has more than
// `max_bytes`.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t max_bytes);

// Writes all of `bytes`, with several calls if the system needs them. `name` is the file's name in
// errors. If `written` is not null, *written is set to the number of bytes written, even if an
// error is returned.
absl::Status WriteAll(int descriptor, absl::string_view bytes, absl::string_view name,
                      size_t* written = nullptr);

// Returns the folder that `path` lies in.
std::string DirectoryOf(const std::string& path);

// A read-only file mapped into memory, which the system loads page by page. Movable. If a mapped
// file is truncated, access to the lost part is fatal (SIGBUS): map only finished files.
class MappedFile {
 public:
  // Maps the file. An empty file is allowed. Errors also: those of OpenRegularFile().
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // Returns the content, which starts at a page boundary. The span is valid until this object is
  // destroyed. If this object is moved, the span is valid until the new object is destroyed.
  absl::Span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  // Tells the system that the file will be read once from front to back.
  void AdviseSequential() const;

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace lodestar
