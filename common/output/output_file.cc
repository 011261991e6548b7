// SPDX-License-Identifier: Apache-2.0

#include "common/output/output_file.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoints/checkpoint_directory.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"
#include "common/storage/file_system.h"
#include "common/storage/folder_sync.h"

namespace lodestar::output {
namespace {

constexpr int kMaxLinks = 40;  // the kernel's limit
constexpr mode_t kPermissions = 07777;

// Returns the path that the link `path` leads to.
absl::StatusOr<std::string> TargetOf(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t length = readlink(path.c_str(), target, sizeof(target));
  if (length < 0) return ErrnoStatus(errno, "read the link", path);
  const std::string text(target, length);
  return absl::StartsWith(text, "/") ? text : absl::StrCat(DirectoryOf(path), "/", text);
}

// Returns true if this program's standard error is written into the file. If the file were
// replaced, the log would go into a file without a name.
bool IsOwnLog(const struct stat& file) {
  struct stat log;
  return fstat(STDERR_FILENO, &log) == 0 && log.st_dev == file.st_dev && log.st_ino == file.st_ino;
}

// Creates a new file beside `target`, in the same file system, so that it can be renamed without a
// copy. A file that an earlier process with the same process id left behind is removed.
absl::StatusOr<storage::SequentialFileWriter> CreateBeside(const std::string& target) {
  const std::string temporary = absl::StrCat(target, ".tmp-", getpid());
  unlink(temporary.c_str());
  return storage::SequentialFileWriter::CreateNew(storage::FileSystem::Real(), temporary);
}

// Returns the path to which `path` leads through symbolic links. Errors: those of ResolveOutput(),
// except those about checkpoints.
absl::StatusOr<std::string> FollowLinks(const std::string& path) {
  if (path.empty()) return absl::InvalidArgumentError("the path of the file is empty");
  if (path == "-") {
    return absl::InvalidArgumentError(
        "the path - would mean standard output, but this program writes a file; give a path (./- "
        "for a file called -)");
  }
  struct stat followed;
  const bool exists = stat(path.c_str(), &followed) == 0;
  const auto refuse = [&path](absl::string_view leads_to, mode_t mode) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, leads_to, FileKindName(mode), "; give the path of a regular file or of a new file"));
  };
  std::string target = path;
  for (int links = 0; links <= kMaxLinks; ++links) {
    struct stat info;
    if (lstat(target.c_str(), &info) != 0) {
      // stat() finds a file, but lstat() does not. So `path` is a link through /proc, such as
      // /dev/stdout, to a pipe or a socket.
      if (errno == ENOENT && exists) return refuse(" is ", followed.st_mode);
      if (errno == ENOENT) return target;
      return ErrnoStatus(errno, "examine", target);
    }
    if (S_ISREG(info.st_mode)) {
      if (IsOwnLog(info)) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, target == path ? "" : absl::StrCat(" leads to ", target, ", which"),
                         " is the file of this program's standard error; give another path"));
      }
      return target;
    }
    if (!S_ISLNK(info.st_mode)) {
      return refuse(target == path ? " is " : absl::StrCat(" leads to ", target, ", "),
                    info.st_mode);
    }
    ASSIGN_OR_RETURN(target, TargetOf(target));
  }
  return ErrnoStatus(ELOOP, "follow the links of", path);
}

}  // namespace

absl::StatusOr<std::string> ResolveOutput(const std::string& path) {
  ASSIGN_OR_RETURN(std::string target, FollowLinks(path));
  const std::optional<std::string> checkpoint =
      checkpoints::CheckpointAround(storage::FileSystem::Real(), DirectoryOf(target));
  if (!checkpoint.has_value()) return target;
  return absl::InvalidArgumentError(absl::StrCat(
      path, target == path ? " lies" : absl::StrCat(" leads to ", target), " in checkpoint ",
      *checkpoint, ", where only servers write files; give a path outside of it"));
}

absl::Status CheckOutput(absl::string_view flag, const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  // The destructor of the ReplacementFile removes the temporary file, because Commit() is not
  // called.
  const absl::Status status = ReplacementFile::Create(path).status();
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("--", flag, "=", path, ": ", status.message()));
}

absl::StatusOr<ReplacementFile> ReplacementFile::Create(const std::string& path) {
  ASSIGN_OR_RETURN(std::string target, ResolveOutput(path));
  ASSIGN_OR_RETURN(storage::SequentialFileWriter writer, CreateBeside(target));
  ReplacementFile file(std::move(target), std::move(writer));
  struct stat info;
  if (stat(file.target_.c_str(), &info) == 0 &&
      chmod(file.writer_.path().c_str(), info.st_mode & kPermissions) != 0) {
    return ErrnoStatus(errno, "set the permissions of", file.writer_.path());
  }
  return file;
}

ReplacementFile::ReplacementFile(std::string target, storage::SequentialFileWriter writer)
    : target_(std::move(target)), writer_(std::move(writer)), is_pending_(true) {}

ReplacementFile::ReplacementFile(ReplacementFile&& other) noexcept
    : target_(std::move(other.target_)),
      writer_(std::move(other.writer_)),
      is_finished_(other.is_finished_),
      is_pending_(std::exchange(other.is_pending_, false)) {}

ReplacementFile::~ReplacementFile() {
  if (is_pending_) unlink(writer_.path().c_str());
}

absl::StatusOr<std::string> ReplacementFile::Finish() {
  if (!is_finished_) RETURN_IF_ERROR(writer_.Finish(/*sync=*/true));
  is_finished_ = true;
  return writer_.path();
}

absl::Status ReplacementFile::CommitAs(const std::string& target) {
  RETURN_IF_ERROR(Finish().status());
  if (std::rename(writer_.path().c_str(), target.c_str()) != 0) {
    return ErrnoStatus(errno, "rename a temporary file to", target);
  }
  is_pending_ = false;
  return storage::FsyncDirectory(DirectoryOf(target));
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents) {
  ASSIGN_OR_RETURN(ReplacementFile file, ReplacementFile::Create(path));
  RETURN_IF_ERROR(file.Append(contents));
  return file.Commit();
}

absl::StatusOr<LineFile> LineFile::Open(const std::string& path, bool may_share) {
  ASSIGN_OR_RETURN(const std::string target, ResolveOutput(path));
  constexpr mode_t kMode = 0644;
  const int descriptor = open(target.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, kMode);
  if (descriptor < 0) return ErrnoStatus(errno, "open for appending", target);
  LineFile file(target, descriptor);
  // If the file system has no locks, flock() fails with another errno, which is ignored.
  const bool is_locked = flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (is_locked && !may_share) {
    return absl::AlreadyExistsError(absl::StrCat(
        target, " is being written by another process; end that process, or give another file"));
  }
  struct stat info;
  if (fstat(descriptor, &info) != 0) return ErrnoStatus(errno, "examine", target);
  char last = '\n';
  if (info.st_size > 0 && pread(descriptor, &last, 1, info.st_size - 1) != 1) {
    return ErrnoStatus(errno, "read the end of", target);
  }
  file.is_cut_short_ = last != '\n';
  return file;
}

LineFile::LineFile(LineFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      is_cut_short_(other.is_cut_short_) {}

LineFile& LineFile::operator=(LineFile&& other) noexcept {
  path_.swap(other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(is_cut_short_, other.is_cut_short_);
  return *this;
}

LineFile::~LineFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status LineFile::Append(absl::string_view line) {
  // If the file was removed, it is created again. Otherwise the lines would be lost.
  struct stat facts;
  if (fstat(descriptor_, &facts) == 0 && facts.st_nlink == 0) {
    ASSIGN_OR_RETURN(LineFile again, Open(path_, /*may_share=*/true));
    *this = std::move(again);
  }
  const std::string text = absl::StrCat(is_cut_short_ ? "\n" : "", line, "\n");
  size_t written = 0;
  const absl::Status status = WriteAll(descriptor_, text, path_, &written);
  if (written == text.size()) {
    is_cut_short_ = false;
  } else if (written > 0) {
    struct stat info;
    const bool is_undone = fstat(descriptor_, &info) == 0 &&
                           ftruncate(descriptor_, info.st_size - static_cast<off_t>(written)) == 0;
    if (!is_undone) is_cut_short_ = true;
  }
  return status;
}

absl::Status LineFile::CutTo(int64_t num_bytes) {
  if (ftruncate(descriptor_, num_bytes) != 0) return ErrnoStatus(errno, "truncate", path_);
  is_cut_short_ = false;
  return absl::OkStatus();
}

absl::Status WriteToStandardOutput(absl::string_view text) {
  return WriteAll(STDOUT_FILENO, text, "to the standard output");
}

}  // namespace lodestar::output
