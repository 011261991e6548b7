#include "common/file_io.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/logging.h"
#include "common/status_macros.h"

namespace lodestar {
namespace {

// A file descriptor that is closed on the way out.
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
    default:
      return absl::StatusCode::kInternal;
  }
}

struct KnownFileSystem {
  int64_t type = 0;
  absl::string_view name;
};

// linux/magic.h and fs/smb/client; those that have, or had, no call to sync a folder.
constexpr KnownFileSystem kSmb[] = {{0xff534d42, "cifs"}, {0xfe534d42, "smb3"}, {0x517b, "smbfs"}};
constexpr KnownFileSystem kOthers[] = {{0x786f4256, "vboxsf"},
                                       {0x65735546, "fuse"},
                                       {0x01021997, "9p"},
                                       {0x2011bab0, "exfat"},
                                       {0x4d44, "vfat"}};

const KnownFileSystem* FindFileSystem(absl::Span<const KnownFileSystem> systems, int64_t type) {
  // f_type is signed on some machines.
  const auto found = std::find_if(systems.begin(), systems.end(), [type](const auto& system) {
    return static_cast<uint32_t>(system.type) == static_cast<uint32_t>(type);
  });
  return found == systems.end() ? nullptr : &*found;
}

bool IsSmb(int64_t type) { return FindFileSystem(kSmb, type) != nullptr; }

std::string FileSystemName(int64_t type) {
  for (const absl::Span<const KnownFileSystem> systems :
       {absl::MakeConstSpan(kSmb), absl::MakeConstSpan(kOthers)}) {
    const KnownFileSystem* const found = FindFileSystem(systems, type);
    if (found != nullptr) return std::string(found->name);
  }
  return absl::StrFormat("of type %#x", static_cast<uint32_t>(type));
}

absl::Status NotRegular(const std::string& path, mode_t mode) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, " is ", FileKindName(mode), ", not a regular file; name a file"));
}

constexpr absl::string_view kRaiseFileSizeLimit =
    "raise that limit (ulimit -f, or LimitFSIZE= of a systemd unit) and start the program again";

}  // namespace

absl::Status ErrnoStatus(int error_number, absl::string_view action, absl::string_view path) {
  std::string text = absl::StrCat("cannot ", action, " ", path, ": ", std::strerror(error_number));
  const std::optional<int64_t> limit = FileSizeLimit();
  if (error_number == EFBIG && limit.has_value()) {
    absl::StrAppend(&text, ": a file that this process writes may have ", *limit, " bytes; ",
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
      file, " take a file of ", num_bytes, " bytes, and a file that this process writes may have ",
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
  // Looked at before it is opened, and again then: another file may have taken its name.
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

absl::Status NameIsLost(absl::string_view path) {
  return absl::NotFoundError(
      absl::StrCat(path, " was removed or replaced while this server was writing it"));
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t max_bytes) {
  std::string contents;
  RETURN_IF_ERROR(ReadBlocks(path, [&](absl::string_view block) {
    absl::StrAppend(&contents, block);
    if (static_cast<int64_t>(contents.size()) <= max_bytes) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has more than the ", max_bytes, " bytes allowed for it"));
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

absl::Status FolderSyncStatus(int error_number, int64_t file_system, absl::string_view path) {
  // What vfs_fsync() of Linux answers for a file system that has no such call.
  const bool is_unable = error_number == EINVAL || error_number == EOPNOTSUPP;
  if (!is_unable) return ErrnoStatus(error_number, "sync directory", path);
  if (IsSmb(file_system)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "cannot sync directory ", path, ": ", std::strerror(error_number), "; its file system, ",
      FileSystemName(file_system),
      ", cannot sync folders, so that new files may be missing after a crash; use a folder on "
      "another one, such as ext4, xfs or NFS"));
}

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status FsyncDirectory(const std::string& path) {
  const ScopedDescriptor directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0) return ErrnoStatus(errno, "open directory", path);
  if (fsync(directory.get()) == 0) return absl::OkStatus();
  const int error_number = errno;
  struct statfs facts = {};
  if (fstatfs(directory.get(), &facts) != 0) facts.f_type = 0;
  RETURN_IF_ERROR(FolderSyncStatus(error_number, facts.f_type, path));
  LogWarn(
      "{}: its file system, {}, cannot sync folders: new files survive a crash of this machine, "
      "but perhaps not one of the file server",
      path, FileSystemName(facts.f_type));
  return absl::OkStatus();
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
  // Advice only: nothing depends on whether the system takes it.
  if (data_ != nullptr) madvise(const_cast<uint8_t*>(data_), size_, MADV_SEQUENTIAL);
}

}  // namespace lodestar
