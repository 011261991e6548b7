// Serializes all that happens to the pure Coordinator, gives it the time (RunningTime), has its
// effects carried out in order, and keeps the calls that wait for a change of its state. One mutex,
// one timer thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "server/coordinator/coordinator.h"
#include "server/rpc/running_time.h"

namespace lodestar {

class CoordinatorStrand {
 public:
  // Why a waiting call is asked once more.
  enum class Occasion { kChange, kPatienceOver, kReplaced, kStopping };
  // Sends an answer; called without the lock.
  using Delivery = std::function<void()>;
  // Looks for an answer; called with the lock. Must find one unless the occasion is kChange.
  // Returns null to go on waiting.
  using Attempt = std::function<Delivery(Coordinator&, absl::Time now, Occasion)>;

  // Called with the lock, so that effects keep their order: must only queue.
  using CarryOut = std::function<void(Effect)>;

  // Leases and patience are looked at every `tick`; infinite: whenever the owner calls Tick(). Both
  // at least every RunningTime::kLongestPause.
  CoordinatorStrand(Clock* clock, absl::Duration tick);
  ~CoordinatorStrand();

  // Before any other call; apart from construction because answers to effects come back here.
  void Start(std::unique_ptr<Coordinator> coordinator, CarryOut carry_out)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // call(coordinator, now), then wakes whoever waits for what it changed. Returns its result.
  template <typename Call>
  auto Run(Call&& call) {
    using Result = std::invoke_result_t<Call, Coordinator&, absl::Time>;
    if constexpr (std::is_void_v<Result>) {
      RunUntyped(call);
    } else {
      std::optional<Result> result;
      RunUntyped([&](Coordinator& coordinator, absl::Time now) {
        result.emplace(call(coordinator, now));
      });
      return *std::move(result);
    }
  }

  // As Run() for answers of our own threads: does nothing once stopped, when those whom the
  // coordinator commands are going away.
  void Report(absl::FunctionRef<void(Coordinator&, absl::Time)> report) ABSL_LOCKS_EXCLUDED(mutex_);

  // Asks at once, then after every change, for the last time when `patience` of the clock is over:
  // it is the caller's, who lives on while this process does not run. A later call
  // with the same key (not 0) replaces this one, so that a client which reconnects leaves nothing
  // behind.
  void Await(uint64_t key, absl::Duration patience, Attempt attempt) ABSL_LOCKS_EXCLUDED(mutex_);

  // Time has passed.
  void Tick() ABSL_LOCKS_EXCLUDED(mutex_);

  // Answers all that wait, with kStopping, as will be every later Await(); no more ticks. Joins the
  // timer thread: not from an attempt or a delivery. Repeats are harmless.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Waiter {
    uint64_t key = 0;
    absl::Time deadline;  // by the clock
    Attempt attempt;
  };

  void RunUntyped(absl::FunctionRef<void(Coordinator&, absl::Time)> call)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void RunTimer() ABSL_LOCKS_EXCLUDED(mutex_);
  // The time for the coordinator, which is told of the gap that ends here, if one does.
  absl::Time Now() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // After each call of the coordinator: has its effects carried out, and asks the waiters as long
  // as that gives answers.
  void Settle(absl::Time now, std::vector<Delivery>* deliveries)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CarryOutEffects() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndWaiters(absl::Time now, Occasion occasion, absl::FunctionRef<bool(const Waiter&)> which,
                  std::vector<Delivery>* deliveries) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Clock* const clock_;
  const absl::Duration tick_;
  absl::Mutex mutex_;
  RunningTime time_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Coordinator> coordinator_ ABSL_GUARDED_BY(mutex_);
  CarryOut carry_out_ ABSL_GUARDED_BY(mutex_);
  std::vector<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
  uint64_t asked_at_version_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread timer_;
};

}  // namespace lodestar
