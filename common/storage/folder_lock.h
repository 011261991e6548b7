// Keeps a second server off a checkpoint folder. The file LOCK in it says which server holds the
// folder, and is held in two ways:
//   a lock of the kernel's, which ends with the process however that ends, and which is seen on
//     every machine where the file system shares locks (NFS does, unless mounted with nolock);
//   a beat, a number that the holder counts up: where the kernel grants the lock although a holder
//     on another machine is written down, that one is alive if its beat moves.
//
// Servers that share a leader lease take the folder from each other. The server that has the lease
// seizes the folder, even if the former holder is frozen and so keeps the kernel's lock. The former
// holder may thaw in the middle of anything. What it writes then has its revision, which is lower,
// and is told apart by that.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/runtime/clock.h"
#include "common/storage/process_identity.h"

namespace lodestar {

// The file is in the folder that is locked.
inline constexpr char kFolderLockName[] = "LOCK";

// The leader lease that a process holds.
struct LeaderFence {
  std::string key;       // of the lease; empty: there is no leader lease
  int64_t revision = 0;  // each process that takes the lease later has a higher one
};

// One server's claim on a folder, as it stands in the file.
struct FolderClaim : ProcessIdentity {
  int64_t beat = 0;
  bool is_released = false;
  LeaderFence fence = {};
};

// This process's own.
FolderClaim NewFolderClaim(LeaderFence fence = {});

// Whether the folder that this machine has under that path is the one in which `claim_id` stands.
// Errors: FailedPrecondition saying what is there instead.
absl::Status CheckClaimIsIn(const std::string& folder, uint64_t claim_id);

// Whether that holds for `folder`, and `other`, if it is another one, is held by the same process.
// Errors: FailedPrecondition.
absl::Status CheckSameHolder(const std::string& folder, uint64_t claim_id,
                             const std::string& other);

// Returns true if a server has taken the folder, now or before: a claim stands in its LOCK.
bool HasFolderClaim(const std::string& folder);

// Whether a server on this machine, or on one whose locks its file system shares, holds the folder.
// Takes nothing; false where that cannot be told.
bool IsFolderHeld(const std::string& folder);

class FolderLock {
 public:
  struct Deps {
    Clock* clock = &Clock::Real();
    // Asked now and then while Take() waits for a sign of life.
    std::function<bool()> is_interrupted = [] { return false; };
    // Called once, from a thread of the lock, when another server has taken the folder over: this
    // one was frozen, or cut off from the disk, for longer than kPatience.
    std::function<void(const absl::Status&)> on_lost = [](const absl::Status&) {};
    // Returns OK while this process holds the leader lease of its claim.
    std::function<absl::Status()> confirm_leader = [] { return absl::OkStatus(); };
    // Returns true for the name of what a run keeps in the folder. Another folder that has such an
    // entry is not claimed in place of the one that was taken. Thread-safe.
    std::function<bool(absl::string_view name)> is_content = [](absl::string_view name) {
      return !absl::StartsWith(name, kFolderLockName);
    };
  };

  static constexpr absl::Duration kBeatInterval = absl::Seconds(4);
  // If a holder on another machine gives no beat for that long, it is taken for dead.
  static constexpr absl::Duration kPatience = absl::Seconds(14);

  // The folder exists. Blocks up to kPatience where a holder on another machine is to be waited
  // for. A holder with a claim under the same leader lease is not waited for: the folder is seized.
  // Errors: AlreadyExists naming the holder; Cancelled once interrupted; those of confirm_leader
  // and of files.
  static absl::StatusOr<std::unique_ptr<FolderLock>> Take(const std::string& folder,
                                                          FolderClaim claim, Deps deps);
  // Releases: the next server neither waits nor wonders.
  ~FolderLock();

  // From here on the claim shows signs of life; at most kBeatInterval after Take().
  void StartBeating();

  // Before something is moved into the folder: whether it still is this server's. Where it was
  // removed and made again meanwhile, or the file in it was, it is claimed again. Blocks for the
  // disk; thread-safe. Errors: AlreadyExists naming another holder; FailedPrecondition if another
  // file system is there, as after umount, or another folder with what a run keeps; those of files.
  absl::Status Confirm() ABSL_LOCKS_EXCLUDED(claim_mutex_);

  // Confirm(), after the folder itself was made again if it was removed: not if what is there in
  // its place is on another file system. Errors: those of Confirm().
  absl::Status Reclaim() ABSL_LOCKS_EXCLUDED(claim_mutex_);

  // After something was written into the folder: whether it still was this server's, so that the
  // next holder finds it. Claims nothing again. Blocks for the disk; thread-safe. Errors:
  // AlreadyExists naming another holder; FailedPrecondition if the file is gone.
  absl::Status CheckHeld() const;

  const std::string& folder() const { return folder_; }
  uint64_t claim_id() const { return claim_id_; }
  // Revision of the claim: that of its leader lease, or more where the folder has had a claim with
  // as much. Claims that follow have a higher one. 0 if the folder has never had a leader lease.
  int64_t revision() const { return revision_; }
  // The holder before this one, if it did not release the folder: it was killed, or its machine
  // went down.
  const std::optional<FolderClaim>& crashed_holder() const { return crashed_; }

 private:
  FolderLock(std::string folder, int descriptor, FolderClaim claim, Deps deps);
  // Whether the holder has released the folder; false: it has given no sign of life for kPatience.
  // Errors: AlreadyExists if it has given one, Cancelled.
  absl::StatusOr<bool> AwaitEnd(const FolderClaim& holder);
  // Replaces the file with a claim of this process, whose kernel lock is on the new file: what the
  // former holder still writes goes into the old one.
  absl::Status Seize() ABSL_EXCLUSIVE_LOCKS_REQUIRED(claim_mutex_);
  // Returns true if `holder` has claimed the folder under the leader lease of this process, before.
  bool Outranks(const FolderClaim& holder) const;
  // Returns OK if the folder that is there may be claimed in place of the one that was taken:
  // `holder` stands in its LOCK. Errors: FailedPrecondition naming what is there.
  absl::Status CheckIsOurs(const std::optional<FolderClaim>& holder) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(claim_mutex_);
  // Takes the place of what was in the folder when it was removed.
  absl::Status ClaimAgain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(claim_mutex_);
  absl::Status Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(claim_mutex_);
  // Returns true if the file in the folder is the one on which the kernel's lock is.
  bool IsStillThere() ABSL_LOCKS_EXCLUDED(claim_mutex_);
  void Beat() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string folder_;
  const std::string path_;
  const uint64_t claim_id_;
  const std::string machine_;
  const std::string lease_key_;
  const Deps deps_;
  int64_t revision_ = 0;  // final once Take() has returned
  absl::Mutex claim_mutex_;
  ino_t folder_inode_ ABSL_GUARDED_BY(claim_mutex_);  // of the folder that was claimed
  int descriptor_ ABSL_GUARDED_BY(claim_mutex_);
  FolderClaim claim_ ABSL_GUARDED_BY(claim_mutex_);
  bool is_held_ = false;  // Take() has succeeded
  std::optional<FolderClaim> crashed_;
  absl::Mutex mutex_;
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread beating_;
};

}  // namespace lodestar
