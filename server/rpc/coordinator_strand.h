// SPDX-License-Identifier: Apache-2.0

// CoordinatorStrand calls the Coordinator, which has no lock, for one caller at a time. It has one
// mutex and one timer thread. Its tasks are:
// - It gives the coordinator the time (RunningTime).
// - It has the coordinator's effects carried out in order.
// - It keeps calls whose answers must wait for a change of the coordinator's state.
//
// With a journal, effects and answers are held until the state that led to them is on disk. One
// record at a time is written. Effects and answers that arise meanwhile are held until the next
// record is on disk. Only alarms are not held, because they may be about the disk.
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
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/runtime/clock.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_memory_json.h"
#include "server/host/coordinator_journal.h"
#include "server/rpc/running_time.h"

namespace lodestar::rpc {

class CoordinatorStrand {
 public:
  // Why a waiting call is tried again.
  enum class Occasion { kChange, kPatienceOver, kReplaced, kStopping };
  // Sends an answer. Called once, without the lock. If `kept` is OK, the state that led to the
  // answer is on disk. Otherwise `kept` is Unavailable, and must be sent instead of the answer.
  // This happens if the process ends before the state is on disk, or if an order has waited too
  // long.
  using Delivery = std::function<void(const absl::Status& kept)>;
  // Tries to find an answer. Called with the lock. Returns null to go on waiting. That is allowed
  // only if the occasion is kChange.
  using Attempt = std::function<Delivery(coordinator::Coordinator&, absl::Time now, Occasion)>;

  // Carries out an effect. Called with the lock, so that effects keep their order, and must only
  // queue. `follows` is the journal record with the state that led to the effect.
  using CarryOut =
      std::function<void(coordinator::Effect, const shards::CoordinatorRecord& follows)>;

  // Leases and patience are checked every `tick`. If `tick` is infinite, they are checked whenever
  // the owner calls Tick(). In both cases a check must happen at least every
  // RunningTime::kLongestPause.
  CoordinatorStrand(Clock* clock, absl::Duration tick);
  ~CoordinatorStrand();

  // Starts the strand. Must be called before any other method. It is separate from the constructor
  // because answers to effects call this object. If `journal` is null, nothing is written.
  // `journal` must outlive all calls but Stop(). Its methods must not call `durable` before they
  // return.
  void Start(std::unique_ptr<coordinator::Coordinator> coordinator, CarryOut carry_out,
             host::CoordinatorJournal* journal = nullptr) ABSL_LOCKS_EXCLUDED(mutex_);

  // Runs call(coordinator, now), then wakes all calls that wait for a change. Returns the call's
  // result. The result must not leave this process, because the state that it describes may not be
  // on disk yet.
  template <typename Call>
  auto Run(Call&& call) {
    using Result = std::invoke_result_t<Call, coordinator::Coordinator&, absl::Time>;
    if constexpr (std::is_void_v<Result>) {
      RunUntyped(call);
    } else {
      std::optional<Result> result;
      RunUntyped([&](coordinator::Coordinator& coordinator, absl::Time now) {
        result.emplace(call(coordinator, now));
      });
      return *std::move(result);
    }
  }

  // Does the same as Run(), and calls deliver(result) like a Delivery. The result of `call` is a
  // status, or has one.
  template <typename Call, typename Deliver>
  void RunAndTell(Call&& call, Deliver deliver) {
    using Result = std::invoke_result_t<Call, coordinator::Coordinator&, absl::Time>;
    RunUntyped([&](coordinator::Coordinator& coordinator, absl::Time now) {
      mutex_.AssertHeld();
      answered_.push_back(
          {[deliver = std::move(deliver), result = call(coordinator, now)](
               const absl::Status& kept) { deliver(kept.ok() ? result : Result(kept)); }});
    });
  }

  // What happens to an order while the journal cannot be written. kTake means that the order is
  // accepted.
  enum class Unwritable { kRefuse, kTake };
  // Maximum time that an order waits for the journal. It is shorter than the deadline of psctl's
  // calls.
  static constexpr absl::Duration kOrderPatience = absl::Seconds(3);

  // Returns Unavailable if the journal cannot be written now and `unwritable` is kRefuse. The text
  // says what is wrong with the journal.
  absl::Status CheckCanOrder(Unwritable unwritable = Unwritable::kRefuse) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Does the same as RunAndTell(), for an operator's order, which must not wait long for a disk.
  // Errors of `call` are returned as they are. Unavailable has these causes, which the text names:
  // - The journal cannot be written, and nothing was ordered. Only with kRefuse.
  // - The order was accepted, but was not on disk after kOrderPatience.
  // - The strand was stopped.
  template <typename Call, typename Deliver>
  void RunOrder(Call&& call, Deliver deliver, Unwritable unwritable = Unwritable::kRefuse) {
    using Result = std::invoke_result_t<Call, coordinator::Coordinator&, absl::Time>;
    if (const absl::Status can = CheckCanOrder(unwritable); !can.ok()) return deliver(Result(can));
    RunUntyped([&](coordinator::Coordinator& coordinator, absl::Time now) {
      mutex_.AssertHeld();
      answered_.push_back({[deliver = std::move(deliver),
                            result = call(coordinator, now)](const absl::Status& kept) {
                             deliver(kept.ok() || !result.ok() ? result : Result(kept));
                           },
                           time_.clock_now() + kOrderPatience});
    });
  }

  // Does the same as Run(), for results that threads of this process report. Does nothing once the
  // strand is stopped, because the objects that the coordinator commands are being destroyed.
  void Report(absl::FunctionRef<void(coordinator::Coordinator&, absl::Time)> report)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Does the same as Report(). Then tries again the calls that wait under the keys that `report`
  // returns, even if nothing has changed.
  void ReportTo(
      absl::FunctionRef<std::vector<uint64_t>(coordinator::Coordinator&, absl::Time)> report)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Calls `attempt` at once, then after every change, and a last time when `patience` is over.
  // Patience is measured by the clock and not by RunningTime, because the client's time goes on
  // while this process does not run. A later call of Await() with the same key replaces this one,
  // because its client has connected again. Key 0 is never replaced.
  void Await(uint64_t key, absl::Duration patience, Attempt attempt) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the leases, and the waiting calls, whose time is over.
  void Tick() ABSL_LOCKS_EXCLUDED(mutex_);
  // Tries the refused writes of the journal at once, instead of after a second.
  void TryJournalAgain() ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns true if effects or answers are held back until the journal is on disk.
  bool awaits_journal() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Answers all waiting calls, and every later Await(), with kStopping. Ends ticks and writes.
  // Drops effects that wait for the journal. Joins the timer thread, so must not be called from an
  // attempt or a delivery. Repeats are harmless.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Waiter {
    uint64_t key = 0;
    absl::Time deadline;  // in clock time
    Attempt attempt;
  };

  struct Answer {
    Delivery deliver;
    absl::Time not_after = absl::InfiniteFuture();  // clock time at which it is sent anyway
  };

  void RunUntyped(absl::FunctionRef<void(coordinator::Coordinator&, absl::Time)> call)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void RunTimer() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the time for the coordinator. If this process did not run until now, reports the length
  // of that gap to the coordinator.
  absl::Time Now() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tries the waiting calls again and again, until no further call gets an answer.
  void AskWaiters(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tries the waiting call with this key, if there is one.
  void AskWaiter(uint64_t key, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndWaiters(absl::Time now, Occasion occasion, absl::FunctionRef<bool(const Waiter&)> which)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // A Batch has the effects and answers that are held until one record of the journal is on disk.
  struct Batch {
    std::vector<coordinator::Effect> effects;
    std::vector<Answer> answers;
  };
  // Called at the end of each call. Carries out the effects, or holds them until the journal has
  // their record. Returns the answers that may be delivered now.
  std::vector<Answer> Release() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Answer> CarryOutAll(Batch batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes and returns the answers that have waited too long for the journal: see
  // Answer::not_after.
  std::vector<Answer> TakeOverdue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Keep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnKept() ABSL_LOCKS_EXCLUDED(mutex_);

  Clock* const clock_;
  const absl::Duration tick_;
  mutable absl::Mutex mutex_;
  RunningTime time_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<coordinator::Coordinator> coordinator_ ABSL_GUARDED_BY(mutex_);
  CarryOut carry_out_ ABSL_GUARDED_BY(mutex_);
  std::vector<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
  std::vector<Answer> answered_ ABSL_GUARDED_BY(mutex_);  // answers of the call that runs
  uint64_t asked_at_version_ ABSL_GUARDED_BY(mutex_) = 0;
  host::CoordinatorJournal* journal_ ABSL_GUARDED_BY(mutex_) = nullptr;
  // True: the strand had a journal and is stopped. Nothing is written any more, and no effect but
  // alarms is carried out.
  bool has_left_journal_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time journal_ticked_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  coordinator::MemoryRecords records_ ABSL_GUARDED_BY(mutex_);
  // Version of the state that was written last.
  uint64_t kept_version_ ABSL_GUARDED_BY(mutex_) = 0;
  shards::CoordinatorRecord keeping_record_ ABSL_GUARDED_BY(mutex_);  // the record of that state
  shards::CoordinatorRecord kept_record_ ABSL_GUARDED_BY(mutex_);  // the last one that is on disk
  // The batch that is held until keeping_record_ is on disk.
  std::optional<Batch> keeping_ ABSL_GUARDED_BY(mutex_);
  Batch next_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread timer_;
};

}  // namespace lodestar::rpc
