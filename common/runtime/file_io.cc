// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/file_io.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/runtime/status_macros.h"

namespace lodestar {
namespace {

// Owns a file descriptor and closes it in the destructor.
class ScopedDescriptor {
 public:
  explicit ScopedDescriptor(int descriptor) : descriptor_(descriptor) {}
  ScopedDescriptor(const ScopedDescriptor&) = delete;
  ScopedDescriptor& operator=(const ScopedDescriptor&) = delete;
  ~ScopedDescriptor() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

absl::StatusCode CodeOf(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EFBIG:
      return absl::StatusCode::kResourceExhausted;
    case EEXIST:
      return absl::StatusCode::kAlreadyExists;
    case EISDIR:
    case ENAMETOOLONG:
      return absl::StatusCode::kInvalidArgument;
    case ENOTCONN:
    case ESTALE:
    case ETIMEDOUT:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::Status NotRegular(const std::string& path, mode_t mode) {
  return absl::InvalidArgumentError(absl::StrCat(
      path, " is ", FileKindName(mode), ", not a regular file; give the path of a regular file"));
}

// Returns text that explains EACCES or ENOENT. An empty text means that no explanation was found.
// - EACCES: the text names owner and mode of `path`, or of the nearest folder above it that stat()
//   can examine.
// - ENOENT: the text names a link in `path` that leads nowhere.
std::string ReasonOnTheWay(int error_number, const std::string& path) {
  const bool is_denied = error_number == EACCES;
  if (!is_denied && error_number != ENOENT) return "";
  struct stat facts;
  std::string part = path;
  while ((is_denied ? stat(part.c_str(), &facts) : lstat(part.c_str(), &facts)) != 0) {
    std::string above = DirectoryOf(part);
    if (above == part) return "";
    part = std::move(above);
  }
  if (is_denied) {
    return absl::StrFormat(": %s belongs to user %d and has mode %04o, and this process is user %d",
                           part, facts.st_uid, facts.st_mode & ALLPERMS, geteuid());
  }
  char target[PATH_MAX];
  const ssize_t length = readlink(part.c_str(), target, sizeof(target));
  if (length <= 0) return "";  // `path` is not a link
  return absl::StrCat(": ", part, " is a link to ",
                      absl::string_view(target, static_cast<size_t>(length)),
                      ", which does not exist");
}

constexpr absl::string_view kRaiseFileSizeLimit =
    "raise that limit (ulimit -f, or LimitFSIZE= of a systemd unit) and start the program again";

}  // namespace

absl::Status ErrnoStatus(int error_number, absl::string_view action, absl::string_view path) {
  std::string text = absl::StrCat("cannot ", action, " ", path, ": ", std::strerror(error_number),
                                  ReasonOnTheWay(error_number, std::string(path)));
  if (error_number == EMFILE) {
    absl::StrAppend(&text,
                    ": raise the limit of this process (ulimit -n, or LimitNOFILE= of a "
                    "systemd unit) and start it again");
  }
  const std::optional<int64_t> limit = FileSizeLimit();
  if (error_number == EFBIG && limit.has_value()) {
    absl::StrAppend(&text, ": the limit for files of this process is ", *limit, " bytes; ",
                    kRaiseFileSizeLimit);
  }
  return absl::Status(CodeOf(error_number), text);
}

std::optional<int64_t> FileSizeLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  constexpr rlim_t kMost = std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(std::min(limit.rlim_cur, kMost));
}

absl::Status CheckFileSize(absl::string_view file, int64_t num_bytes) {
  const std::optional<int64_t> limit = FileSizeLimit();
  if (!limit.has_value() || num_bytes <= *limit) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      file, " need a file of ", num_bytes, " bytes, but the limit for files of this process is ",
      *limit, " bytes; ", kRaiseFileSizeLimit));
}

const char* FileKindName(unsigned mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

absl::StatusOr<OpenedFile> OpenRegularFile(const std::string& path) {
  OpenedFile file;
  // The file is checked before open(), because opening a device may have effects. It is checked
  // again after open(), because another file may have got its name meanwhile.
  if (stat(path.c_str(), &file.facts) != 0) return ErrnoStatus(errno, "open", path);
  if (!S_ISREG(file.facts.st_mode)) return NotRegular(path, file.facts.st_mode);
  file.descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file.descriptor < 0) return ErrnoStatus(errno, "open", path);
  absl::Status status;
  if (fstat(file.descriptor, &file.facts) != 0) {
    status = ErrnoStatus(errno, "examine", path);
  } else if (!S_ISREG(file.facts.st_mode)) {
    status = NotRegular(path, file.facts.st_mode);
  }
  if (status.ok()) return file;
  close(file.descriptor);
  return status;
}

absl::Status ReadBlocks(const std::string& path,
                        absl::FunctionRef<absl::Status(absl::string_view block)> take) {
  ASSIGN_OR_RETURN(const OpenedFile opened, OpenRegularFile(path));
  const ScopedDescriptor file(opened.descriptor);
  return ReadBlocks(file.get(), path, take);
}

absl::Status ReadBlocks(int descriptor, absl::string_view name,
                        absl::FunctionRef<absl::Status(absl::string_view block)> take) {
  char buffer[1 << 16];
  while (true) {
    const ssize_t count = read(descriptor, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(errno, "read", name);
    if (count == 0) return absl::OkStatus();
    RETURN_IF_ERROR(take(absl::string_view(buffer, count)));
  }
}

absl::Status CheckIsThere(const std::string& path) {
  struct stat facts;
  if (stat(path.c_str(), &facts) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, "look at", path);
}

absl::Status NameIsLost(absl::string_view path) {
  return absl::NotFoundError(absl::StrCat(path,
                                          " was removed or replaced while this server was writing "
                                          "it; keep other programs out of its folder"));
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t max_bytes) {
  std::string contents;
  RETURN_IF_ERROR(ReadBlocks(path, [&](absl::string_view block) {
    absl::StrAppend(&contents, block);
    if (static_cast<int64_t>(contents.size()) <= max_bytes) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has more than ", max_bytes, " bytes, the maximum for this file"));
  }));
  return contents;
}

absl::Status WriteAll(int descriptor, absl::string_view bytes, absl::string_view name,
                      size_t* written) {
  while (!bytes.empty()) {
    const ssize_t count = write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(errno, "write", name);
    bytes.remove_prefix(static_cast<size_t>(count));
    if (written != nullptr) *written += static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(const OpenedFile opened, OpenRegularFile(path));
  const ScopedDescriptor file(opened.descriptor);
  MappedFile mapped;
  mapped.path_ = path;
  if (opened.facts.st_size == 0) return mapped;
  const size_t size = static_cast<size_t>(opened.facts.st_size);
  void* const data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) return ErrnoStatus(errno, "map", path);
  mapped.data_ = static_cast<const uint8_t*>(data);
  mapped.size_ = size;
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
}

void MappedFile::AdviseSequential() const {
  // The result is ignored: nothing depends on whether the system follows the advice.
  if (data_ != nullptr) madvise(const_cast<uint8_t*>(data_), size_, MADV_SEQUENTIAL);
}

}  // namespace lodestar
