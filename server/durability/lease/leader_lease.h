// Makes sure that of all processes that are given one key, at most one goes on as server: the
// holder of the lease on the key. See LeaseCourse for what that rests on.
//
// A process that was frozen, or was cut off from the store, for longer than the lease lasts is told
// so by its own clock, whatever the store says. Between a call of CheckHeld() and what the process
// does next it may still be frozen: what must not happen twice is also refused by the receiver, by
// incarnation. A virtual machine that its host pauses may not see that time on any clock.
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
    // Asked now and then while Take() waits.
    std::function<bool()> is_interrupted = [] { return false; };
    // Called once, from a thread of the lease, when it is lost: another server may hold it within a
    // tenth of the time that it lasts, so this process must end at once.
    std::function<void(const absl::Status&)> on_lost = [](const absl::Status&) {};
  };

  // Blocks until this process holds the lease, for as long as another does or the store is away;
  // the log says which. Errors: Cancelled once interrupted; FailedPrecondition if the key belongs
  // to a process with another role.
  // `config`: endpoints are those of the store.
  static absl::StatusOr<std::unique_ptr<LeaderLease>> Take(LeaseCourse::Config config, Deps deps);
  // Gives it back, if the store is there: the next process need not wait. Blocks for at most
  // kReleasePatience, and for the call under way.
  ~LeaderLease();

  static constexpr absl::Duration kReleasePatience = absl::Seconds(2);

  // Whether this process still is the one. Compares the clock with what was granted: no I/O.
  // Thread-safe. Errors: Aborted, for good.
  absl::Status CheckHeld() const ABSL_LOCKS_EXCLUDED(mutex_);
  const std::string& key() const { return key_; }
  // LeaseKey::revision of the key that this process has made. Thread-safe.
  int64_t revision() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  LeaderLease(LeaseCourse::Config config, Deps deps);
  absl::Status AwaitHeld() ABSL_LOCKS_EXCLUDED(mutex_);
  void Watch() ABSL_LOCKS_EXCLUDED(mutex_);
  void Carry(const LeaseCall& call) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whenever it changes; that the store is away, from time to time.
  void Say(const std::string& notice, bool is_store_away, absl::Time now);

  const std::string name_;
  const std::string key_;
  const Deps deps_;
  mutable absl::Mutex mutex_;
  LeaseCourse course_ ABSL_GUARDED_BY(mutex_);
  bool has_news_ ABSL_GUARDED_BY(mutex_) = false;  // for Watch()
  std::optional<absl::Time> release_until_ ABSL_GUARDED_BY(mutex_);

  // Used by Watch() only.
  std::string said_;
  absl::Time said_away_ = absl::InfinitePast();

  std::unique_ptr<ThreadPool> calls_;  // so that a call that hangs delays no deadline
  std::thread watch_;
};

}  // namespace lodestar::lease
