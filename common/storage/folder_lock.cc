// SPDX-License-Identifier: Apache-2.0

#include "common/storage/folder_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/archive/json_archive.h"
#include "common/logging/logging.h"
#include "common/runtime/file_io.h"
#include "common/runtime/json.h"
#include "common/runtime/status_macros.h"

namespace lodestar::storage {

template <typename Archive>
void Describe(Archive& archive, FolderClaim& claim) {
  DescribeIdentity(archive, claim);
  archive("beat", claim.beat);
  archive("released", claim.is_released);
  if (archive.Has("lease_revision", claim.fence.revision > 0)) {
    archive("lease_key", claim.fence.key);
    archive("lease_revision", claim.fence.revision);
  }
}

namespace {

constexpr absl::Duration kLook = absl::Milliseconds(500);
constexpr int64_t kMaxBytes = 4096;

std::string ToText(const FolderClaim& claim) {
  return FormatJson(archive::RecordToJson(claim)) + "\n";
}

absl::StatusOr<FolderClaim> FromText(absl::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text, {.max_bytes = kMaxBytes}));
  FolderClaim claim;
  RETURN_IF_ERROR(archive::ReadRecord(json, claim));
  return claim;
}

// Returns the claim in the file, or nullopt if none can be read.
std::optional<FolderClaim> ReadClaim(const std::string& path) {
  const auto text = ReadWholeFile(path, kMaxBytes);
  if (!text.ok()) return std::nullopt;
  auto claim = FromText(*text);
  return claim.ok() ? std::optional(*std::move(claim)) : std::nullopt;
}

// Reads the claim like ReadClaim(). If it is incomplete, the holder may be writing it, so reads
// again for about two seconds. If it is still incomplete, a crash has cut it short, and nullopt is
// returned.
std::optional<FolderClaim> ReadWholeClaim(const std::string& path, Clock& clock) {
  constexpr int kLooks = 4;
  for (int i = 0; i < kLooks; ++i) {
    if (auto claim = ReadClaim(path); claim.has_value()) return claim;
    std::error_code error;
    if (std::filesystem::file_size(path, error) == 0 || error) return std::nullopt;
    clock.Sleep(kLook);
  }
  return std::nullopt;
}

// Locks the open file and not the process, so that two servers in one process also exclude each
// other. Returns 0 or an errno.
int LockForThisServer(int descriptor) {
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return fcntl(descriptor, F_OFD_SETLK, &whole) == 0 ? 0 : errno;
}

constexpr bool IsHeldElsewhere(int error) { return error == EAGAIN || error == EACCES; }

absl::StatusOr<int> OpenLockFile(const std::string& path) {
  constexpr mode_t kMode = 0644;
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kMode);
  if (descriptor < 0) return ErrnoStatus(errno, "open", path);
  return descriptor;
}

// Returns the inode of the folder, or 0 if it cannot be examined.
ino_t InodeOf(const std::string& folder) {
  struct stat facts;
  return stat(folder.c_str(), &facts) == 0 ? facts.st_ino : 0;
}

absl::Status HeldBy(const std::string& path, const std::optional<FolderClaim>& holder) {
  return absl::AlreadyExistsError(
      absl::StrCat(path, " is held by ", holder.has_value() ? holder->Describe() : "another server",
                   ". Two servers in one folder would overwrite each other's checkpoints. Stop "
                   "that server, or give another folder"));
}

}  // namespace

FolderClaim NewFolderClaim(LeaderFence fence) {
  FolderClaim claim = {NewProcessIdentity()};
  claim.fence = std::move(fence);
  return claim;
}

bool HasFolderClaim(const std::string& folder) {
  return ReadClaim(absl::StrCat(folder, "/", kFolderLockName)).has_value();
}

absl::Status CheckClaimIsIn(const std::string& folder, uint64_t claim_id) {
  const std::string path = absl::StrCat(folder, "/", kFolderLockName);
  const std::optional<FolderClaim> claim = ReadWholeClaim(path, Clock::Real());
  if (claim.has_value() && claim->id == claim_id) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the coordinator's --checkpoint_dir=", folder, " is not the same folder on this server: ",
      claim.has_value() ? absl::StrCat("the lock file ", path, " names ", claim->Describe())
                        : absl::StrCat("the coordinator's lock file ", path, " is missing"),
      ". Give the coordinator an absolute path, and mount that folder at this path on every "
      "server"));
}

absl::Status CheckSameHolder(const std::string& folder, uint64_t claim_id,
                             const std::string& other) {
  RETURN_IF_ERROR(CheckClaimIsIn(folder, claim_id));
  if (other == folder) return absl::OkStatus();
  const auto holder_of = [](const std::string& path) {
    return ReadWholeClaim(absl::StrCat(path, "/", kFolderLockName), Clock::Real());
  };
  const std::optional<FolderClaim> ours = holder_of(folder);
  const std::optional<FolderClaim> theirs = holder_of(other);
  if (ours.has_value() && theirs.has_value() && ours->machine == theirs->machine &&
      ours->process == theirs->process) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the lock file ", other, "/", kFolderLockName,
                   " does not name the coordinator, which holds the folder ", folder,
                   ". Give the coordinator absolute paths, and mount its folders at these paths on "
                   "every server"));
}

absl::StatusOr<FolderPlace> PlaceOf(const std::string& folder) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::canonical(folder, error);
  struct stat info;
  if (error || stat(path.c_str(), &info) != 0) {
    return ErrnoStatus(error ? error.value() : errno, "examine", folder);
  }
  FolderPlace place = {.device = info.st_dev, .mount_point = ""};
  while (path.has_relative_path() && stat(path.parent_path().c_str(), &info) == 0 &&
         info.st_dev == place.device) {
    path = path.parent_path();
  }
  place.mount_point = path.string();
  return place;
}

bool IsFolderHeld(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kFolderLockName);
  const int descriptor = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return false;
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  const bool is_held = fcntl(descriptor, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
  close(descriptor);
  return is_held;
}

absl::StatusOr<std::unique_ptr<FolderLock>> FolderLock::Take(const std::string& folder,
                                                             FolderClaim claim, Deps deps) {
  const std::string path = absl::StrCat(folder, "/", kFolderLockName);
  ASSIGN_OR_RETURN(const int descriptor, OpenLockFile(path));
  std::unique_ptr<FolderLock> lock(
      new FolderLock(folder, descriptor, std::move(claim), std::move(deps)));
  {
    absl::MutexLock claiming(&lock->claim_mutex_);
    ASSIGN_OR_RETURN(lock->place_, lock->deps_.place_of(folder));
  }
  const int error = LockForThisServer(descriptor);
  const bool is_granted = error == 0;
  const std::optional<FolderClaim> holder = ReadWholeClaim(path, *lock->deps_.clock);
  // The lease must be confirmed after the claim was read. Then the process that wrote the claim had
  // the lease before this process.
  RETURN_IF_ERROR(lock->deps_.confirm_leader());
  const bool is_unreleased = holder.has_value() && !holder->is_released;
  const bool seizes =
      is_unreleased && !lock->lease_key_.empty() && holder->fence.key == lock->lease_key_;
  if (IsHeldElsewhere(error) && !seizes) return HeldBy(path, holder);
  if (is_unreleased) {
    // If the kernel grants the lock and the holder was on this machine, the holder's process has
    // ended. Otherwise the holder may be alive, so AwaitEnd() waits for its beat.
    bool has_released = false;
    if (!seizes && (!is_granted || holder->machine != lock->machine_)) {
      ASSIGN_OR_RETURN(has_released, lock->AwaitEnd(*holder));
    }
    if (!has_released) lock->crashed_ = holder;
  }
  {
    absl::MutexLock claiming(&lock->claim_mutex_);
    int64_t& revision = lock->claim_.fence.revision;
    // A store of leases that has lost its data counts revisions from 1 again. But each claim on a
    // folder must have a higher revision than the claim before it, which shows their order.
    if (holder.has_value() && holder->fence.revision > 0) {
      revision = std::max(revision, holder->fence.revision + 1);
    }
    lock->revision_ = revision;
    RETURN_IF_ERROR(seizes ? lock->Seize() : lock->Write());
  }
  if (seizes) {
    logging::LogWarn("this server takes {} over from {}, which held the leader lease before", path,
                     holder->Describe());
  }
  lock->is_held_ = true;
  return lock;
}

absl::Status FolderLock::Confirm() {
  absl::MutexLock lock(&claim_mutex_);
  struct stat held, there;
  if (fstat(descriptor_, &held) != 0) return ErrnoStatus(errno, "examine", path_);
  ASSIGN_OR_RETURN(const FolderPlace place, deps_.place_of(folder_));
  // The device of LOCK says nothing: on an overlay, files and folders have different devices.
  if (place.device != place_.device) {
    if (place.mount_point == place_.mount_point) return ClaimAgain();
    return absl::FailedPreconditionError(
        absl::StrCat(folder_,
                     " is on another file system than when this server claimed it; perhaps it was "
                     "unmounted. Nothing is moved into it. Mount a file system at ",
                     place_.mount_point, " again"));
  }
  if (stat(path_.c_str(), &there) != 0) {
    return errno == ENOENT ? ClaimAgain() : ErrnoStatus(errno, "examine", path_);
  }
  if (there.st_ino != held.st_ino) return ClaimAgain();
  const std::optional<FolderClaim> holder = ReadWholeClaim(path_, *deps_.clock);
  if (!holder.has_value() || holder->id == claim_id_) return absl::OkStatus();
  return Outranks(*holder) ? Seize() : HeldBy(path_, holder);
}

absl::Status FolderLock::Reclaim() {
  std::error_code error;
  std::filesystem::path above = folder_;
  while (above.has_relative_path() && !std::filesystem::exists(above, error)) {
    above = above.parent_path();
  }
  if (above != folder_) {
    absl::MutexLock lock(&claim_mutex_);
    const std::string nearest = above.empty() ? "." : above.string();
    ASSIGN_OR_RETURN(const FolderPlace there, deps_.place_of(nearest));
    if (there.mount_point != place_.mount_point) {
      return absl::FailedPreconditionError(
          absl::StrCat(folder_, " is gone, and ", nearest,
                       " is on another file system; perhaps the file system of the folder was "
                       "unmounted. Mount a file system at ",
                       place_.mount_point, " again"));
    }
    std::filesystem::create_directories(folder_, error);
    if (error) return ErrnoStatus(error.value(), "create directory", folder_);
  }
  return Confirm();
}

bool FolderLock::Outranks(const FolderClaim& holder) const {
  return !lease_key_.empty() && holder.fence.key == lease_key_ && holder.fence.revision < revision_;
}

absl::Status FolderLock::Seize() {
  RETURN_IF_ERROR(deps_.confirm_leader());
  const std::string fresh = absl::StrCat(path_, ".", claim_id_);
  ASSIGN_OR_RETURN(const int descriptor, OpenLockFile(fresh));
  const int former = std::exchange(descriptor_, descriptor);
  const int error = LockForThisServer(descriptor);
  absl::Status seized = error == 0 ? Write() : ErrnoStatus(error, "lock", fresh);
  if (seized.ok() && rename(fresh.c_str(), path_.c_str()) != 0) {
    seized = ErrnoStatus(errno, "rename", fresh);
  }
  if (!seized.ok()) {
    unlink(fresh.c_str());
    close(std::exchange(descriptor_, former));
    return seized;
  }
  close(former);
  return absl::OkStatus();
}

absl::Status FolderLock::CheckHeld() const {
  const std::optional<FolderClaim> holder = ReadWholeClaim(path_, *deps_.clock);
  if (!holder.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat(
        path_, " is gone; perhaps ", folder_, " was removed or unmounted. Put that folder back"));
  }
  return holder->id == claim_id_ ? absl::OkStatus() : HeldBy(path_, holder);
}

absl::Status FolderLock::CheckIsOurs(const std::optional<FolderClaim>& holder) const {
  const bool is_own_claim = holder.has_value() && holder->id == claim_id_;
  // If there is no LOCK, the inode tells whether this is the folder that was claimed.
  const bool is_own_folder = !holder.has_value() && InodeOf(folder_) == folder_inode_;
  if (is_own_claim || is_own_folder) return absl::OkStatus();
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    if (!deps_.is_content(entry.path().filename().string())) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        folder_, " is not the folder that this server claimed: it has ",
        entry.path().filename().string(), ", which this server has not written",
        holder.has_value() ? absl::StrCat(" (its LOCK names ", holder->Describe(), ")") : "",
        ". Perhaps another folder was moved, linked, mounted or copied there. Nothing is written "
        "into it or removed from it. Put back the former folder, or an empty one"));
  }
  return absl::OkStatus();
}

absl::Status FolderLock::ClaimAgain() {
  struct stat there;
  if (stat(path_.c_str(), &there) != 0) RETURN_IF_ERROR(CheckIsOurs(std::nullopt));
  ASSIGN_OR_RETURN(const int descriptor, OpenLockFile(path_));
  const int error = LockForThisServer(descriptor);
  const std::optional<FolderClaim> holder = ReadWholeClaim(path_, *deps_.clock);
  // True if the holder has released the folder, or if its process has ended. The process has ended
  // if it was on this machine and the kernel grants the lock.
  const bool is_gone =
      holder.has_value() && (holder->is_released || (error == 0 && holder->machine == machine_));
  // True if another server has claimed the folder, and may still run. It may run on a machine whose
  // locks the kernel here does not see.
  const bool is_others = holder.has_value() && holder->id != claim_id_ && !is_gone;
  // True if a leader with a later lease has claimed the folder. It does not matter whether that
  // leader still runs.
  const bool is_followed = holder.has_value() && holder->fence.revision > revision_;
  if (IsHeldElsewhere(error) && holder.has_value() && holder->id == claim_id_) {
    // The file is the one that this process has locked, seen through another mount.
    close(descriptor);
    ASSIGN_OR_RETURN(place_, deps_.place_of(folder_));
    return absl::OkStatus();
  }
  if (IsHeldElsewhere(error) || is_others || is_followed) {
    close(descriptor);
    return holder.has_value() && Outranks(*holder) ? Seize() : HeldBy(path_, holder);
  }
  if (const absl::Status ours = CheckIsOurs(holder); !ours.ok()) {
    close(descriptor);
    return ours;
  }
  close(std::exchange(descriptor_, descriptor));
  folder_inode_ = InodeOf(folder_);
  ASSIGN_OR_RETURN(place_, deps_.place_of(folder_));
  RETURN_IF_ERROR(Write());
  logging::LogWarn(
      "{} was removed, or its file system was mounted again, while this server held it; this "
      "server has made the file again. If other files there were removed, they are lost",
      path_);
  return absl::OkStatus();
}

void FolderLock::StartBeating() {
  beating_ = std::thread([this] { Beat(); });
}

FolderLock::FolderLock(std::string folder, int descriptor, FolderClaim claim, Deps deps)
    : folder_(std::move(folder)),
      path_(absl::StrCat(folder_, "/", kFolderLockName)),
      claim_id_(claim.id),
      machine_(claim.machine),
      lease_key_(claim.fence.key),
      deps_(std::move(deps)),
      folder_inode_(InodeOf(folder_)),
      descriptor_(descriptor),
      claim_(std::move(claim)) {}

FolderLock::~FolderLock() {
  {
    absl::MutexLock lock(&mutex_);
    is_ending_ = true;
  }
  if (beating_.joinable()) beating_.join();
  absl::MutexLock lock(&claim_mutex_);
  const std::optional<FolderClaim> holder = ReadClaim(path_);
  if (is_held_ && holder.has_value() && holder->id == claim_id_) {
    claim_.is_released = true;
    // If the write fails, the claim is not marked as released. The next server then reports that
    // this server has crashed, and takes the folder.
    Write().IgnoreError();
  }
  close(descriptor_);  // also releases the kernel's lock
}

absl::StatusOr<bool> FolderLock::AwaitEnd(const FolderClaim& holder) {
  logging::LogWarn(
      "{} names {}, which is on another machine or ran before a reboot; this server waits {} to "
      "see whether the named server still renews the file",
      path_, holder.Describe(), absl::FormatDuration(kPatience));
  const absl::Time deadline = deps_.clock->Now() + kPatience;
  while (deps_.clock->Now() < deadline) {
    if (deps_.is_interrupted()) return absl::CancelledError("told to stop");
    deps_.clock->Sleep(kLook);
    const std::optional<FolderClaim> now = ReadClaim(path_);
    if (now.has_value() && (now->beat != holder.beat || now->id != holder.id)) {
      if (now->is_released) return true;
      return HeldBy(path_, now);
    }
  }
  return false;
}

absl::Status FolderLock::Write() {
  ++claim_.beat;
  const std::string text = ToText(claim_);
  // The file must be overwritten and not replaced, because the kernel's lock is on this file. A
  // reader that sees an incomplete claim reads again.
  if (pwrite(descriptor_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
      ftruncate(descriptor_, static_cast<off_t>(text.size())) != 0 ||
      fdatasync(descriptor_) != 0) {  // makes the claim visible to other machines
    return ErrnoStatus(errno, "write", path_);
  }
  return absl::OkStatus();
}

bool FolderLock::IsStillThere() {
  absl::MutexLock lock(&claim_mutex_);
  struct stat held;
  struct stat there;
  return fstat(descriptor_, &held) == 0 && stat(path_.c_str(), &there) == 0 &&
         held.st_dev == there.st_dev && held.st_ino == there.st_ino;
}

void FolderLock::Beat() {
  const auto is_ending = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_ending_; };
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (deps_.clock->Await(mutex_, absl::Condition(&is_ending), kBeatInterval)) return;
    }
    const std::optional<FolderClaim> holder = ReadClaim(path_);
    if (holder.has_value() && holder->id != claim_id_ && !Outranks(*holder)) {
      const bool is_same_file = IsStillThere();
      // If LOCK is another file than this process has locked, another folder may be at the path, or
      // the file system may be unmounted. Only AlreadyExists of Confirm() then means that another
      // server has taken the folder. The code that saves checkpoints reports the other cases.
      if (!is_same_file && !absl::IsAlreadyExists(Confirm())) continue;
      return deps_.on_lost(absl::FailedPreconditionError(absl::StrCat(
          path_,
          is_same_file ? " was not renewed in time by this server and was taken over by "
                       : " was removed while this server held it, and created again by ",
          holder->Describe(), "; this server must not save there any more")));
    }
    // If the claim cannot be confirmed, it is not written. The next checkpoint reports the error,
    // such as a full disk. If the folder was removed, the next checkpoint creates it again.
    if (!Confirm().ok()) continue;
    absl::MutexLock lock(&claim_mutex_);
    Write().IgnoreError();
  }
}

}  // namespace lodestar::storage
