#include "common/security/secret_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/file_io.h"
#include "common/status_macros.h"

namespace lodestar {
namespace {

constexpr mode_t kOthersMask = S_IRWXG | S_IRWXO;
constexpr mode_t kModeMask = 07777;
constexpr mode_t kOthersWriteMask = S_IWGRP | S_IWOTH;

absl::Status MakeFolder(const std::string& path) {
  if (mkdir(path.c_str(), S_IRWXU) == 0 || errno == EEXIST) return absl::OkStatus();
  const std::string above = std::filesystem::path(path).parent_path();
  if (errno != ENOENT || above.empty() || above == path) {
    return ErrnoStatus(errno, "create", path);
  }
  RETURN_IF_ERROR(MakeFolder(above));
  // Another process may make it meanwhile.
  if (mkdir(path.c_str(), S_IRWXU) == 0 || errno == EEXIST) return absl::OkStatus();
  return ErrnoStatus(errno, "create", path);
}

}  // namespace

absl::StatusOr<std::string> ReadSecretFile(const std::string& path, int64_t max_bytes) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return ErrnoStatus(errno, "open", path);
  const auto close_it = absl::MakeCleanup([descriptor] { close(descriptor); });
  struct stat facts {};
  if (fstat(descriptor, &facts) != 0) return ErrnoStatus(errno, "look at", path);
  if (!S_ISREG(facts.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is no regular file"));
  }
  if ((facts.st_mode & kOthersMask) != 0) {
    return absl::PermissionDeniedError(absl::StrFormat(
        "%s has mode %04o, wanted is 0600: it holds a secret, and others than its owner may read "
        "or write it; chmod 600 %s",
        path, facts.st_mode & kModeMask, path));
  }
  if (facts.st_size > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", facts.st_size, " bytes; at most ", max_bytes, " are expected"));
  }
  std::string contents(facts.st_size, '\0');
  size_t done = 0;
  while (done < contents.size()) {
    const ssize_t got = read(descriptor, contents.data() + done, contents.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "read", path);
    if (got == 0) break;
    done += got;
  }
  contents.resize(done);
  return contents;
}

absl::Status WriteSecretFile(const std::string& path, absl::string_view contents) {
  const std::string temporary = absl::StrCat(path, ".tmp-", getpid());
  unlink(temporary.c_str());
  const int descriptor =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (descriptor < 0) return ErrnoStatus(errno, "create", temporary);
  absl::Status written = WriteAll(descriptor, contents, temporary);
  if (written.ok() && fsync(descriptor) != 0) written = ErrnoStatus(errno, "write", temporary);
  close(descriptor);
  if (written.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    written = ErrnoStatus(errno, "write", path);
  }
  if (!written.ok()) {
    unlink(temporary.c_str());
    return written;
  }
  return FsyncDirectory(DirectoryOf(path));
}

absl::Status MakeSecretFolder(const std::string& path) {
  RETURN_IF_ERROR(MakeFolder(path));
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) return ErrnoStatus(errno, "look at", path);
  if (!S_ISDIR(facts.st_mode)) return ErrnoStatus(ENOTDIR, "use", path);
  const bool is_own = facts.st_uid == geteuid() || facts.st_uid == 0;
  if (is_own && (facts.st_mode & kOthersWriteMask) == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      path, " is for keys, and ", is_own ? "others may write into it" : "belongs to another user",
      "; use a folder of your own that only you may write into (chmod 700)"));
}

}  // namespace lodestar
