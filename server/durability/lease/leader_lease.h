// SPDX-License-Identifier: Apache-2.0

// LeaderLease makes sure that of all processes that are given one key, at most one runs as server:
// the holder of the lease on the key. LeaseCourse says under which conditions.
//
// If a process was frozen or cut off from the store for longer than the lease lasts, its own clock
// shows that, whatever the store answers. A process may also be frozen between CheckHeld() and its
// next action. So if an action must not happen twice, its receiver must refuse it too, by
// incarnation. If a host pauses a virtual machine, the clocks of that machine may not show the
// pause.
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
    // Called once, from a thread of the lease, when the lease is lost. After another tenth of the
    // lease's duration, another server may hold it. So this process must end at once.
    std::function<void(const absl::Status&)> on_lost = [](const absl::Status&) {};
  };

  // Blocks until this process holds the lease. It waits while another process holds the lease or
  // the store does not answer, and the log says which. The endpoints in `config` are those of the
  // store. Errors: Cancelled (interrupted); FailedPrecondition (the key belongs to a process with
  // another role).
  static absl::StatusOr<std::unique_ptr<LeaderLease>> Take(LeaseCourse::Config config, Deps deps);
  // Gives the lease back if the store answers, so that the next process need not wait. Blocks for
  // at most kReleasePatience and for the call under way.
  ~LeaderLease();

  static constexpr absl::Duration kReleasePatience = absl::Seconds(2);

  // Checks that this process still holds the lease. Compares the clock with the granted time,
  // without I/O. Thread-safe. Errors: Aborted (lost for good).
  absl::Status CheckHeld() const ABSL_LOCKS_EXCLUDED(mutex_);
  const std::string& key() const { return key_; }
  // Returns LeaseKey::revision of the key that this process has made. Thread-safe.
  int64_t revision() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  LeaderLease(LeaseCourse::Config config, Deps deps);
  absl::Status AwaitHeld() ABSL_LOCKS_EXCLUDED(mutex_);
  void Watch() ABSL_LOCKS_EXCLUDED(mutex_);
  void Carry(const LeaseCall& call) ABSL_LOCKS_EXCLUDED(mutex_);
  // Logs `notice` if it has changed. If `is_store_away`, logs it again now and then.
  void Say(const std::string& notice, bool is_store_away, absl::Time now);

  const std::string name_;
  const std::string key_;
  const Deps deps_;
  mutable absl::Mutex mutex_;
  LeaseCourse course_ ABSL_GUARDED_BY(mutex_);
  bool has_news_ ABSL_GUARDED_BY(mutex_) = false;  // wakes Watch()
  std::optional<absl::Time> release_until_ ABSL_GUARDED_BY(mutex_);

  // The members below are used by Watch() only.
  std::string said_;
  absl::Time said_away_ = absl::InfinitePast();

  std::unique_ptr<ThreadPool> calls_;  // own thread, so that a call that hangs delays no deadline
  std::thread watch_;
};

}  // namespace lodestar::lease
