// SPDX-License-Identifier: Apache-2.0

// Keeps a second server out of a checkpoint folder. The file LOCK in the folder says which server
// holds it. The claim is protected in two ways:
//
// The first is a kernel lock, which ends with the process in any case. It is seen on every machine
// if the file system shares locks (NFS does, unless mounted with nolock). The second is a beat, a
// number that the holder counts up. The file may name a holder on another machine although the
// kernel grants the lock here. That holder is alive if its beat changes.
//
// Servers that share a leader lease take the folder from each other. The server that has the lease
// seizes the folder, even if the former holder is frozen and still has the kernel lock. The former
// holder may continue at any time. Files that it then writes have its lower revision, which shows
// that a former holder wrote them.
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

// Checks that LOCK of `folder` on this machine has the claim `claim_id`. If so, the server with
// that claim and this process use the same folder. Errors: FailedPrecondition saying what is there
// instead.
absl::Status CheckClaimIsIn(const std::string& folder, uint64_t claim_id);

// Checks `folder` with CheckClaimIsIn(). If `other` is another folder, also checks that the same
// process holds it. Errors: FailedPrecondition.
absl::Status CheckSameHolder(const std::string& folder, uint64_t claim_id,
                             const std::string& other);

// Returns true if a server has claimed the folder, now or earlier.
bool HasFolderClaim(const std::string& folder);

// Returns true if a server holds the folder, on this machine or on a machine whose locks the file
// system shares. Does not lock the folder. Returns false also if this cannot be found out.
bool IsFolderHeld(const std::string& folder);

class FolderLock {
 public:
  struct Deps {
    Clock* clock = &Clock::Real();
    // Called from time to time while Take() waits for a beat of another holder. If it returns true,
    // Take() ends the wait.
    std::function<bool()> is_interrupted = [] { return false; };
    // Called once, on a thread of the lock, if another server has taken the folder over: this
    // server was frozen, or cut off from the disk, for longer than kPatience.
    std::function<void(const absl::Status&)> on_lost = [](const absl::Status&) {};
    // Returns OK if this process holds the leader lease of its claim.
    std::function<absl::Status()> confirm_leader = [] { return absl::OkStatus(); };
    // Returns true for the names of files that a run keeps in the folder. If another folder is now
    // at the path of the claimed folder, that folder is claimed only if it has no such file.
    // Thread-safe.
    std::function<bool(absl::string_view name)> is_content = [](absl::string_view name) {
      return !absl::StartsWith(name, kFolderLockName);
    };
  };

  static constexpr absl::Duration kBeatInterval = absl::Seconds(4);
  // If a holder on another machine shows no beat for this long, it counts as dead.
  static constexpr absl::Duration kPatience = absl::Seconds(14);

  // Claims an existing folder. Blocks up to kPatience if a holder on another machine may be alive.
  // If the holder's claim was made under the same leader lease, seizes the folder without waiting.
  // Errors: AlreadyExists naming the holder; Cancelled (interrupted); those of confirm_leader and
  // of files.
  static absl::StatusOr<std::unique_ptr<FolderLock>> Take(const std::string& folder,
                                                          FolderClaim claim, Deps deps);
  // Releases the folder. The next server to take it does not wait, and does not report a crash.
  ~FolderLock();

  // Starts the beat of the claim. Must be called within kBeatInterval after Take().
  void StartBeating();

  // Checks that the folder still belongs to this server, before something is moved into it. If the
  // folder or its file was removed and created again, claims it again. Blocks on the disk.
  // Thread-safe. Errors: AlreadyExists naming another holder; FailedPrecondition (another file
  // system is there, as after umount, or another folder with files of a run); those of files.
  absl::Status Confirm() ABSL_LOCKS_EXCLUDED(claim_mutex_);

  // Creates the folder if it was removed, and calls Confirm(). Does not create the folder if its
  // path is now on another file system. Errors: those of Confirm().
  absl::Status Reclaim() ABSL_LOCKS_EXCLUDED(claim_mutex_);

  // Checks, after something was written into the folder, that the folder still belongs to this
  // server, so that the next holder finds what was written. Never claims the folder again. Blocks
  // on the disk. Thread-safe. Errors: AlreadyExists naming another holder; FailedPrecondition if
  // the file is gone.
  absl::Status CheckHeld() const;

  const std::string& folder() const { return folder_; }
  uint64_t claim_id() const { return claim_id_; }
  // Returns the revision of the claim: the revision of its leader lease, or more if an earlier
  // claim on the folder had an equal or higher one. Later claims have a higher revision. 0 means
  // that the folder has never had a leader lease.
  int64_t revision() const { return revision_; }
  // Returns the former holder if it did not release the folder, because it was killed or its
  // machine went down.
  const std::optional<FolderClaim>& crashed_holder() const { return crashed_; }

 private:
  FolderLock(std::string folder, int descriptor, FolderClaim claim, Deps deps);
  // Waits for a beat of `holder`. Returns true if the holder has released the folder, and false if
  // no beat came for kPatience. Errors: AlreadyExists (a beat came); Cancelled.
  absl::StatusOr<bool> AwaitEnd(const FolderClaim& holder);
  // Replaces the file with a claim of this process, which locks the new file. If the former holder
  // still writes its claim, that goes into the old file.
  absl::Status Seize() ABSL_EXCLUSIVE_LOCKS_REQUIRED(claim_mutex_);
  // Returns true if `holder` claimed the folder earlier under the same leader lease as this
  // process.
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
  int descriptor_ ABSL_GUARDED_BY(claim_mutex_);
  FolderClaim claim_ ABSL_GUARDED_BY(claim_mutex_);
  bool is_held_ = false;  // true: Take() has succeeded
  std::optional<FolderClaim> crashed_;
  absl::Mutex mutex_;
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread beating_;
};

}  // namespace lodestar::storage
