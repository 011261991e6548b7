// Files of the machine: whole small files, blocks of large ones, mapped files. What an operator
// names as an output is written through common/output/output_file.h, checkpoints through
// common/storage/file_system.h. Errors name the path and the system's text; a full disk and a file
// beyond FileSizeLimit() are ResourceExhausted, a missing file NotFound, a forbidden one
// PermissionDenied.
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

// "cannot <action> <path>: <text of error_number>", with the code that fits. EACCES is explained by
// the owner and mode of what denies access, ENOENT by a link on the way that leads nowhere.
absl::Status ErrnoStatus(int error_number, absl::string_view action, absl::string_view path);

// The most bytes that one file may have which this process writes (RLIMIT_FSIZE). nullopt means no
// limit. Writing beyond it fails with EFBIG in programs that have called SetUpProgram().
std::optional<int64_t> FileSizeLimit();

// Compares a file that is to be written with FileSizeLimit(). `file` names it, such as "the weights
// of shard 0". Errors: FailedPrecondition with both numbers.
absl::Status CheckFileSize(absl::string_view file, int64_t num_bytes);

// Returns OK if there is a file or folder that `path` leads to. Errors: NotFound, PermissionDenied,
// or another one of the system.
absl::Status CheckIsThere(const std::string& path);

// The NotFound of a file that is open, and that its path does not lead to any more.
absl::Status NameIsLost(absl::string_view path);

// "a folder", "a FIFO", "a socket" or "a device" for what is no regular file. `mode` is st_mode.
const char* FileKindName(unsigned mode);

// A file that is open for reading. The caller closes `descriptor`.
struct OpenedFile {
  int descriptor = -1;
  struct stat facts;
};

// Opens a file that a user has named, or that lies in a folder of a user, without waiting for
// anything: opening a FIFO would wait for its writer, and opening a device may do something. Errors
// also: InvalidArgument naming what the path leads to, unless that is a regular file.
absl::StatusOr<OpenedFile> OpenRegularFile(const std::string& path);

// Hands over the file from front to back, in blocks that `take` must not keep. Errors also: those
// of OpenRegularFile(); the first of `take`, which ends it. `name`: of an open file, for errors.
absl::Status ReadBlocks(int descriptor, absl::string_view name,
                        absl::FunctionRef<absl::Status(absl::string_view block)> take);
absl::Status ReadBlocks(const std::string& path,
                        absl::FunctionRef<absl::Status(absl::string_view block)> take);

// Errors also: InvalidArgument if there are more than `max_bytes`.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t max_bytes);

// Writes all of `bytes`, however little the system takes at once. `name`: of the file, for errors.
// *written (may be null) counts what was written, also before an error.
absl::Status WriteAll(int descriptor, absl::string_view bytes, absl::string_view name,
                      size_t* written = nullptr);

// The folder that `path` lies in.
std::string DirectoryOf(const std::string& path);

// A file in memory, read-only, loaded by the system page by page. Movable.
// Cutting a mapped file short makes access to the lost part fatal (SIGBUS): map only finished
// files.
class MappedFile {
 public:
  // Errors also: those of OpenRegularFile(). An empty file is fine.
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

}  // namespace lodestar
