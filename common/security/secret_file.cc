// SPDX-License-Identifier: Apache-2.0

#include "common/security/secret_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/logging/logging.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"
#include "common/storage/folder_sync.h"

namespace lodestar::security {
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
  // Another process may have created the folder meanwhile.
  if (mkdir(path.c_str(), S_IRWXU) == 0 || errno == EEXIST) return absl::OkStatus();
  return ErrnoStatus(errno, "create", path);
}

enum class Whose : uint8_t { kUsers, kThisPrograms };

// Advice in error messages about files that belong to another user.
constexpr absl::string_view kOneUser =
    "always run this program as the same user (runAsUser in the securityContext of a pod, User= of "
    "a systemd unit)";

bool IsInGroup(gid_t group) {
  if (group == getegid()) return true;
  const int count = getgroups(0, nullptr);
  std::vector<gid_t> groups(std::max(count, 0));
  if (getgroups(static_cast<int>(groups.size()), groups.data()) < 0) return false;
  return std::find(groups.begin(), groups.end(), group) != groups.end();
}

// Returns true if the file looks like a Secret in a Kubernetes pod. Such a file belongs to root,
// and besides root only a group of this process can read it. If this process is root, the group
// root does not count.
bool IsOfRootForThisGroup(const struct stat& facts) {
  const bool is_read_only = (facts.st_mode & (S_IWGRP | S_IXGRP | S_IRWXO)) == 0;
  const bool is_own = geteuid() == 0 && facts.st_gid == 0;
  return facts.st_uid == 0 && is_read_only && !is_own && IsInGroup(facts.st_gid);
}

// Returns true if the file belongs to root or to this user, and an access control list gives access
// to this user and to no other user or group. systemd passes credentials to a service this way
// (LoadCredential=). The group bits of such a file's mode are the mask of the list, see acl(5).
bool IsListedForThisUserAlone(int descriptor, const struct stat& facts) {
  // The form of the attribute in Linux, little-endian: a version, then the entries.
  struct Entry {
    uint16_t tag;
    uint16_t permissions;
    uint32_t id;
  };
  constexpr uint32_t kVersion = 2;
  constexpr uint16_t kOwner = 0x01, kNamedUser = 0x02, kMask = 0x10;
  if ((facts.st_uid != 0 && facts.st_uid != geteuid()) || (facts.st_mode & S_IRWXO) != 0) {
    return false;
  }
  std::vector<char> list(4096);
  const ssize_t size = fgetxattr(descriptor, "system.posix_acl_access", list.data(), list.size());
  uint32_t version = 0;
  if (size < static_cast<ssize_t>(sizeof(version))) return false;
  memcpy(&version, list.data(), sizeof(version));
  if (version != kVersion) return false;
  for (size_t at = sizeof(version); at + sizeof(Entry) <= static_cast<size_t>(size);
       at += sizeof(Entry)) {
    Entry entry;
    memcpy(&entry, list.data() + at, sizeof(entry));
    const bool is_allowed = entry.tag == kOwner || entry.tag == kMask || entry.permissions == 0 ||
                            (entry.tag == kNamedUser && entry.id == geteuid());
    if (!is_allowed) return false;
  }
  return true;
}

// Checks that only the owner may read and write the file. Removes the permissions of the group if
// that is safe. Errors: PermissionDenied.
absl::Status CheckClosed(int descriptor, const std::string& path, const struct stat& facts,
                         Whose whose) {
  if ((facts.st_mode & kOthersMask) == 0 || IsOfRootForThisGroup(facts) ||
      IsListedForThisUserAlone(descriptor, facts)) {
    return absl::OkStatus();
  }
  const bool is_own = facts.st_uid == geteuid();
  // If every user of the machine could read the secret, another user may already know it. So this
  // is an error, and the permissions stay.
  const bool is_open_to_all = (facts.st_mode & S_IRWXO) != 0;
  if (is_own && !is_open_to_all && whose == Whose::kThisPrograms &&
      fchmod(descriptor, facts.st_mode & kModeMask & ~kOthersMask) == 0) {
    logging::LogInfo(
        "changed the permissions of {}, which had mode {:04o}, so that only its owner can use it",
        path, facts.st_mode & kModeMask);
    return absl::OkStatus();
  }
  constexpr absl::string_view kInPod = "set defaultMode: 0400 for the volume of the Secret";
  std::string remedy = absl::StrCat("chmod 600 ", path);
  if (is_own && whose == Whose::kUsers) absl::StrAppend(&remedy, ", or in a pod ", kInPod);
  if (!is_own) {
    remedy = absl::StrFormat("it belongs to user %d, and this process runs as user %d; ",
                             facts.st_uid, geteuid());
    if (whose == Whose::kThisPrograms) {
      absl::StrAppend(&remedy, kOneUser);
    } else {
      absl::StrAppend(&remedy, "chown it to this user and chmod 600 it, or in a pod ", kInPod,
                      " and set an fsGroup for the pod");
    }
  }
  return absl::PermissionDeniedError(
      absl::StrFormat("%s holds a secret, and its mode %04o lets other users read or write it; it "
                      "must have mode 0600: %s",
                      path, facts.st_mode & kModeMask, remedy));
}

absl::StatusOr<std::string> ReadClosedFile(const std::string& path, int64_t max_bytes,
                                           Whose whose) {
  ASSIGN_OR_RETURN(const OpenedFile file, OpenRegularFile(path));
  const auto [descriptor, facts] = file;
  const auto close_it = absl::MakeCleanup([&file] { close(file.descriptor); });
  RETURN_IF_ERROR(CheckClosed(descriptor, path, facts, whose));
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

// Checks that the folder holds no files of other users. They may have put files there while they
// could write to the folder.
absl::Status CheckNothingOfOthers(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    struct stat facts {};
    const std::string path = entry.path();
    if (lstat(path.c_str(), &facts) != 0) continue;
    if (facts.st_uid == geteuid() || facts.st_uid == 0) continue;
    return absl::PermissionDeniedError(
        absl::StrFormat("%s belongs to user %d, but %s may only have keys of user %d. Find out "
                        "which program put the file there, and remove it",
                        path, facts.st_uid, folder, geteuid()));
  }
  if (error) return ErrnoStatus(error.value(), "list", folder);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadSecretFile(const std::string& path, int64_t max_bytes) {
  return ReadClosedFile(path, max_bytes, Whose::kUsers);
}

absl::StatusOr<std::string> ReadKeptSecretFile(const std::string& path, int64_t max_bytes) {
  return ReadClosedFile(path, max_bytes, Whose::kThisPrograms);
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
  return storage::FsyncDirectory(DirectoryOf(path));
}

absl::Status MakeSecretFolder(const std::string& path) {
  if (const absl::Status made = MakeFolder(path); !made.ok()) {
    return absl::Status(
        made.code(),
        absl::StrCat(
            made.message(), "; this user's keys and state must be in ", path,
            ". Give --state_dir=FOLDER with a folder that this user can write, or set HOME"));
  }
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) return ErrnoStatus(errno, "look at", path);
  if (!S_ISDIR(facts.st_mode)) return ErrnoStatus(ENOTDIR, "use", path);
  const bool is_open = (facts.st_mode & kOthersWriteMask) != 0;
  const bool is_own = facts.st_uid == geteuid();
  if (!is_open && (is_own || facts.st_uid == 0)) return absl::OkStatus();
  if (is_own && (facts.st_mode & S_IWOTH) != 0) {
    return absl::PermissionDeniedError(
        absl::StrFormat("%s is a folder for keys but has mode %04o, so that every user can write "
                        "into it. Check its files, and chmod 700 it",
                        path, facts.st_mode & kModeMask));
  }
  if (is_own && chmod(path.c_str(), S_IRWXU) == 0) {
    RETURN_IF_ERROR(CheckNothingOfOthers(path));
    logging::LogInfo(
        "changed the permissions of {}, which had mode {:04o}, so that only its owner can use it",
        path, facts.st_mode & kModeMask);
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrFormat("%s is a folder for keys of user %d with mode %04o, but this process runs as "
                      "user %d; %s, or give a folder that does not exist yet",
                      path, facts.st_uid, facts.st_mode & kModeMask, geteuid(), kOneUser));
}

}  // namespace lodestar::security
