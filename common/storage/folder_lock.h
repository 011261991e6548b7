// SPDX-License-Identifier: Apache-2.0

// FolderLock keeps a second server out of a checkpoint folder. The file LOCK in the folder contains
// the claim of the server that holds the folder. Other servers see in two ways that the holder is
// alive:
// - The kernel keeps a lock on LOCK until the holder's process ends. Other machines see this lock
//   only if the file system shares locks. NFS shares them, unless it is mounted with nolock.
// - The holder increases a number in LOCK, the beat. If LOCK names a holder on another machine and
//   the kernel here grants the lock, only the beat shows that the holder is alive.
//
// Servers that share a leader lease take the folder from each other. The server that has the lease
// seizes the folder, even from a holder that is frozen and still has the kernel lock. Such a holder
// may later continue to write files. These files have the lower revision of its claim, which shows
// that they are not from the present holder.
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

namespace lodestar::storage {

// Name of the file, in the folder that is locked.
inline constexpr char kFolderLockName[] = "LOCK";

// The leader lease that a process holds.
struct LeaderFence {
  std::string key;       // key of the lease; empty means that there is no leader lease
  int64_t revision = 0;  // each later process that takes the lease has a higher revision
};

// One server's claim on a folder, as it is stored in LOCK.
struct FolderClaim : ProcessIdentity {
  int64_t beat = 0;
  bool is_released = false;
  LeaderFence fence = {};
};

// Returns a claim of this process.
FolderClaim NewFolderClaim(LeaderFence fence = {});

// Checks that LOCK in `folder` contains the claim `claim_id`. This shows that `folder` on this
// machine is the folder that the server with that claim has claimed. Errors: FailedPrecondition
// saying what is there instead.
absl::Status CheckClaimIsIn(const std::string& folder, uint64_t claim_id);

// Checks `folder` with CheckClaimIsIn(). If `other` is another path, also checks that one process
// holds both folders. Errors: FailedPrecondition.
absl::Status CheckSameHolder(const std::string& folder, uint64_t claim_id,
                             const std::string& other);

// Returns true if LOCK contains a claim. It may be the claim of a server that has ended.
bool HasFolderClaim(const std::string& folder);

// Returns true if a server holds the folder, on this machine or on a machine whose locks the file
// system shares. Does not lock the folder. Returns false also if this cannot be found out.
bool IsFolderHeld(const std::string& folder);

// Where a folder lies. Each mount of a file system may have another device number.
struct FolderPlace {
  dev_t device = 0;
  std::string mount_point;  // absolute path of the highest folder that has this device
  friend bool operator==(const FolderPlace&, const FolderPlace&) = default;
};

// Returns the place of an existing folder. Errors: those of stat().
absl::StatusOr<FolderPlace> PlaceOf(const std::string& folder);

class FolderLock {
 public:
  struct Deps {
    Clock* clock = &Clock::Real();
    // While Take() waits for a beat of another holder, it calls this about twice a second. If the
    // function returns true, Take() returns Cancelled.
    std::function<bool()> is_interrupted = [] { return false; };
    // Called once, on a thread of the lock, if another server has taken the folder. This server may
    // have lost its leader lease, or not have written its beat for kPatience. LOCK may also have
    // been removed.
    std::function<void(const absl::Status&)> on_lost = [](const absl::Status&) {};
    // Returns OK if this process holds the leader lease of its claim.
    std::function<absl::Status()> confirm_leader = [] { return absl::OkStatus(); };
    std::function<absl::StatusOr<FolderPlace>(const std::string& folder)> place_of = PlaceOf;
    // Returns true if `name` is the name of a file that a run keeps in the folder. If another
    // folder is now at the path of the claimed folder, it is claimed only if it has no such file.
    // Thread-safe.
    std::function<bool(absl::string_view name)> is_content = [](absl::string_view name) {
      return !absl::StartsWith(name, kFolderLockName);
    };
  };

  static constexpr absl::Duration kBeatInterval = absl::Seconds(4);
  // If a holder on another machine shows no beat for this long, it counts as dead.
  static constexpr absl::Duration kPatience = absl::Seconds(14);

  // Claims an existing folder. If a holder on another machine may be alive, blocks for up to
  // kPatience. If the holder's claim was made under the same leader lease, seizes the folder
  // without waiting. Errors:
  // - AlreadyExists names the holder.
  // - Cancelled: `is_interrupted` returned true.
  // - Those of `confirm_leader` and of files.
  static absl::StatusOr<std::unique_ptr<FolderLock>> Take(const std::string& folder,
                                                          FolderClaim claim, Deps deps);
  // Releases the folder. The next server to take it does not wait, and does not report a crash.
  ~FolderLock();

  // Starts the beat of the claim. Must be called within kBeatInterval after Take().
  void StartBeating();

  // Checks that the folder still belongs to this server. Call this before something is moved into
  // the folder. If the folder or its LOCK was removed and created again, or if a file system was
  // mounted again at the same mount point, claims the folder again. Blocks on the disk.
  // Thread-safe. Errors:
  // - AlreadyExists names another holder.
  // - FailedPrecondition means that the folder's file system was unmounted, or that another folder
  //   with files of a run is at the path.
  // - Those of files.
  absl::Status Confirm() ABSL_LOCKS_EXCLUDED(claim_mutex_);

  // Creates the folder if it was removed, and calls Confirm(). Does not create the folder if its
  // file system was unmounted. Errors: those of Confirm().
  absl::Status Reclaim() ABSL_LOCKS_EXCLUDED(claim_mutex_);

  // Checks that the folder still belongs to this server. Call this after something was written into
  // the folder. If the check passes, the next holder finds what was written. Never claims the
  // folder again. Blocks on the disk. Thread-safe. Errors: AlreadyExists naming another holder;
  // FailedPrecondition if the file is gone.
  absl::Status CheckHeld() const;

  const std::string& folder() const { return folder_; }
  uint64_t claim_id() const { return claim_id_; }
  // Returns the revision of the claim. It is the revision of the claim's leader lease. If the claim
  // before it had an equal or higher revision, it is that revision plus 1. 0 means that no claim on
  // the folder has had a leader lease.
  int64_t revision() const { return revision_; }
  // Returns the former holder if it did not release the folder, because it was killed or its
  // machine went down.
  const std::optional<FolderClaim>& crashed_holder() const { return crashed_; }

 private:
  FolderLock(std::string folder, int descriptor, FolderClaim claim, Deps deps);
  // Blocks until the claim in LOCK differs from `holder`, at most for kPatience. Returns true if
  // the folder was released, and false if the claim has not changed. Errors: AlreadyExists (a
  // holder is alive); Cancelled.
  absl::StatusOr<bool> AwaitEnd(const FolderClaim& holder);
  // Replaces LOCK with a new file, which this process has locked and which has its claim. A former
  // holder that still writes its claim then writes into the old file.
  absl::Status Seize() ABSL_EXCLUSIVE_LOCKS_REQUIRED(claim_mutex_);
  // Returns true if `holder` and this process claim under the same leader lease, and the revision
  // of the holder's claim is lower than that of this process's claim.
  bool Outranks(const FolderClaim& holder) const;
  // Checks that the folder that is now at the path may be claimed in place of the claimed folder.
  // `holder` is the claim in its LOCK. Errors: FailedPrecondition naming what is there.
  absl::Status CheckIsOurs(const std::optional<FolderClaim>& holder) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(claim_mutex_);
  // Claims the folder again after it or its LOCK was removed.
  absl::Status ClaimAgain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(claim_mutex_);
  absl::Status Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(claim_mutex_);
  // Returns true if the LOCK in the folder is the file that this process has locked.
  bool IsStillThere() ABSL_LOCKS_EXCLUDED(claim_mutex_);
  void Beat() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string folder_;
  const std::string path_;
  const uint64_t claim_id_;
  const std::string machine_;
  const std::string lease_key_;
  const Deps deps_;
  int64_t revision_ = 0;  // does not change after Take() has returned
  absl::Mutex claim_mutex_;
  ino_t folder_inode_ ABSL_GUARDED_BY(claim_mutex_);  // inode of the claimed folder
  FolderPlace place_ ABSL_GUARDED_BY(claim_mutex_);   // place of the claimed folder
  int descriptor_ ABSL_GUARDED_BY(claim_mutex_);
  FolderClaim claim_ ABSL_GUARDED_BY(claim_mutex_);
  bool is_held_ = false;  // true: Take() has succeeded
  std::optional<FolderClaim> crashed_;
  absl::Mutex mutex_;
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread beating_;
};

}  // namespace lodestar::storage
