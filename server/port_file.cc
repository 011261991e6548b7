// SPDX-License-Identifier: Apache-2.0

#include "server/port_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/output/output_file.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"

namespace lodestar::server {
namespace {

constexpr int64_t kMaxBytes = 6;  // "65535" and a line end

bool IsPort(absl::string_view text) {
  absl::ConsumeSuffix(&text, "\n");
  constexpr int kHighest = 65535;
  int port = 0;
  return absl::SimpleAtoi(text, &port) && port > 0 && port <= kHighest;
}

FileDescriptor OpenForLock(const std::string& path) {
  return FileDescriptor(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
}

// Returns false only if another process holds the lock. Some file systems have no locks; then the
// result is true.
bool TryLock(const FileDescriptor& file) {
  return !file.is_open() || flock(file.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

bool IsSameFile(const FileDescriptor& file, const std::string& path) {
  struct stat own;
  struct stat there;
  return fstat(file.get(), &own) == 0 && stat(path.c_str(), &there) == 0 &&
         own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

absl::Status ClearStale(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string target, output::ResolveOutput(path));
  struct stat info;
  if (stat(target.c_str(), &info) != 0 || info.st_size == 0) return absl::OkStatus();
  std::string text;
  if (info.st_size <= kMaxBytes) {
    ASSIGN_OR_RETURN(text, ReadWholeFile(target, kMaxBytes));
  }
  if (!IsPort(text)) {
    return absl::InvalidArgumentError(
        absl::StrCat(target, " exists, but is not a port file: it has ", info.st_size,
                     " bytes, and a port file has one number from 1 to 65535. Give another path, "
                     "or move the file away"));
  }
  const FileDescriptor file = OpenForLock(target);
  if (!TryLock(file)) return absl::OkStatus();
  if (unlink(target.c_str()) != 0 && errno != ENOENT) {
    return ErrnoStatus(errno, "remove the old port file", target);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PortFile::Clear(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(output::CheckOutput("port_file", path));
  const absl::Status status = ClearStale(path);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("--port_file=", path, ": ", status.message()));
}

absl::StatusOr<PortFile> PortFile::Write(const std::string& path, int port) {
  if (path.empty()) return PortFile("", FileDescriptor());
  ASSIGN_OR_RETURN(std::string target, output::ResolveOutput(path));
  ASSIGN_OR_RETURN(output::ReplacementFile file, output::ReplacementFile::Create(target));
  RETURN_IF_ERROR(file.Append(absl::StrCat(port, "\n")));
  ASSIGN_OR_RETURN(const std::string written, file.Finish());
  // The lock is taken while the file still has its temporary name. So no process sees the file
  // unlocked under its final name.
  FileDescriptor descriptor = OpenForLock(written);
  TryLock(descriptor);
  RETURN_IF_ERROR(file.Commit());
  return PortFile(std::move(target), std::move(descriptor));
}

PortFile::PortFile(PortFile&& other) noexcept
    : path_(std::exchange(other.path_, "")), descriptor_(std::move(other.descriptor_)) {}

PortFile::~PortFile() {
  if (!path_.empty() && IsSameFile(descriptor_, path_)) unlink(path_.c_str());
}

}  // namespace lodestar::server
