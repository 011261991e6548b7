// SPDX-License-Identifier: Apache-2.0

// LeaderLease makes sure that at most one of all processes with the same key runs as server: the
// one that holds the lease on the key. LeaseCourse names the conditions.
//
// - If a process was frozen, or could not reach the store, for longer than the lease, its own clock
//   shows that the lease is lost.
// - A process may be frozen between CheckHeld() and its next action. So the receiver of an action
//   must also check the server's incarnation if the action must not happen twice.
// - If a host pauses a virtual machine, the machine's clocks may not show the pause.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/runtime/clock.h"
#include "common/runtime/executor.h"
#include "server/durability/lease/lease_course.h"
#include "server/durability/lease/lease_store.h"

namespace lodestar::lease {

class LeaderLease {
 public:
  struct Deps {
    std::unique_ptr<LeaseStore> store;
    Clock* clock = &Clock::RealThroughSuspend();
    // Asked repeatedly while Take() waits.
    std::function<bool()> is_interrupted = [] { return false; };
    // Called once, from a thread of the lease, when the lease is lost. This process must end at
    // once: after another tenth of the lease's duration, another server may hold the lease.
    std::function<void(const absl::Status&)> on_lost = [](const absl::Status&) {};
  };

  // Blocks until this process holds the lease. If another process holds it or the store does not
  // answer, logs that and waits. Errors: Cancelled (interrupted); FailedPrecondition (the key
  // belongs to a process with another role).
  static absl::StatusOr<std::unique_ptr<LeaderLease>> Take(LeaseCourse::Config config, Deps deps);
  // Gives the lease back if the store answers, so that the next process gets it at once. Blocks for
  // at most kReleasePatience, and until a call to the store that is still running has returned.
  ~LeaderLease();

  static constexpr absl::Duration kReleasePatience = absl::Seconds(2);

  // Checks by the clock, without I/O, that this process still holds the lease. Thread-safe. Errors:
  // Aborted (lost for good).
  absl::Status CheckHeld() const ABSL_LOCKS_EXCLUDED(mutex_);
  const std::string& key() const { return key_; }
  // Returns LeaseKey::revision of this process's key. Thread-safe.
  int64_t revision() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  LeaderLease(LeaseCourse::Config config, Deps deps);
  absl::Status AwaitHeld() ABSL_LOCKS_EXCLUDED(mutex_);
  void Watch() ABSL_LOCKS_EXCLUDED(mutex_);
  void Carry(const LeaseCall& call) ABSL_LOCKS_EXCLUDED(mutex_);
  // Logs `notice` if it is new. If `is_store_away`, logs it every kSayAgain.
  void Say(const std::string& notice, bool is_store_away, absl::Time now);

  const std::string name_;
  const std::string key_;
  const Deps deps_;
  mutable absl::Mutex mutex_;
  LeaseCourse course_ ABSL_GUARDED_BY(mutex_);
  bool has_news_ ABSL_GUARDED_BY(mutex_) = false;  // wakes Watch()
  std::optional<absl::Time> release_until_ ABSL_GUARDED_BY(mutex_);

  // Only Watch() uses the members below.
  std::string said_;
  absl::Time said_away_ = absl::InfinitePast();

  std::unique_ptr<ThreadPool> calls_;  // own thread, so that a call that hangs delays no deadline
  std::thread watch_;
};

}  // namespace lodestar::lease
