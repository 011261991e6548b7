// Serializes all that happens to the pure Coordinator, gives it the time (RunningTime), has its
// effects carried out in order, and keeps the calls that wait for a change of its state. One mutex,
// one timer thread.
//
// With a journal, nothing leaves before the memory that it follows from is on disk: neither effects
// nor answers. One record at a time is written; what happens meanwhile leaves with the next one.
// Alarms alone go at once: they may be about the disk.
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
  // Why a waiting call is asked once more.
  enum class Occasion { kChange, kPatienceOver, kReplaced, kStopping };
  // Sends an answer, once, without the lock. `kept` is OK, or it is Unavailable and is to be said
  // instead of the answer. Then this process ends before the journal has what the answer follows
  // from, or an order waits no longer.
  using Delivery = std::function<void(const absl::Status& kept)>;
  // Looks for an answer; called with the lock. Must find one unless the occasion is kChange.
  // Returns null to go on waiting.
  using Attempt = std::function<Delivery(Coordinator&, absl::Time now, Occasion)>;

  // Is called with the lock, so that effects keep their order, and must only queue. `follows` is
  // the record of the journal that the effect follows from.
  using CarryOut = std::function<void(Effect, const CoordinatorRecord& follows)>;

  // Leases and patience are looked at every `tick`. If it is infinite, they are looked at whenever
  // the owner calls Tick(). Either must happen at least every RunningTime::kLongestPause.
  CoordinatorStrand(Clock* clock, absl::Duration tick);
  ~CoordinatorStrand();

  // Must come before any other call. It is apart from construction because answers to effects come
  // back here. `journal` must not call back from within its calls, and outlives all calls but
  // Stop(). If it is null, nothing is kept.
  void Start(std::unique_ptr<Coordinator> coordinator, CarryOut carry_out,
             host::CoordinatorJournal* journal = nullptr) ABSL_LOCKS_EXCLUDED(mutex_);

  // Runs call(coordinator, now), then wakes all calls that wait for what it changed. Returns its
  // result, which is for this process only: what it tells of may not be kept yet.
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

  // Does as Run(), and calls deliver(result) as a Delivery is called. The result of `call` is a
  // status, or has one.
  template <typename Call, typename Deliver>
  void RunAndTell(Call&& call, Deliver deliver) {
    using Result = std::invoke_result_t<Call, Coordinator&, absl::Time>;
    RunUntyped([&](Coordinator& coordinator, absl::Time now) {
      mutex_.AssertHeld();
      answered_.push_back(
          {[deliver = std::move(deliver), result = call(coordinator, now)](
               const absl::Status& kept) { deliver(kept.ok() ? result : Result(kept)); }});
    });
  }

  // Unwritable says what to do with an order while the journal cannot be written.
  enum class Unwritable { kRefuse, kTake };
  // A call that gives an order waits so long for the journal. It is less than a call of psctl
  // takes.
  static constexpr absl::Duration kOrderPatience = absl::Seconds(3);

  // Unavailable, with the journal and what is wrong with it, if an order had to wait for that.
  absl::Status CheckCanOrder(Unwritable unwritable = Unwritable::kRefuse) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Does as RunAndTell(), for the order of an operator, which is not to wait for a disk.
  // Unavailable names the journal and what is wrong with it. It means that nothing was ordered
  // (kRefuse), or that the order is taken, and not on disk after kOrderPatience. What `call`
  // refuses stays refused.
  template <typename Call, typename Deliver>
  void RunOrder(Call&& call, Deliver deliver, Unwritable unwritable = Unwritable::kRefuse) {
    using Result = std::invoke_result_t<Call, Coordinator&, absl::Time>;
    if (const absl::Status can = CheckCanOrder(unwritable); !can.ok()) return deliver(Result(can));
    RunUntyped([&](Coordinator& coordinator, absl::Time now) {
      mutex_.AssertHeld();
      answered_.push_back({[deliver = std::move(deliver),
                            result = call(coordinator, now)](const absl::Status& kept) {
                             deliver(kept.ok() || !result.ok() ? result : Result(kept));
                           },
                           time_.clock_now() + kOrderPatience});
    });
  }

  // Does as Run() for answers of this process's own threads. It does nothing once the strand is
  // stopped, when those that the coordinator commands are going away.
  void Report(absl::FunctionRef<void(Coordinator&, absl::Time)> report) ABSL_LOCKS_EXCLUDED(mutex_);

  // Does as Report(). Then it asks for answers to the calls that wait under the keys that `report`
  // returns, whatever has changed.
  void ReportTo(absl::FunctionRef<std::vector<uint64_t>(Coordinator&, absl::Time)> report)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Asks at once, then after every change, for the last time when `patience` of the clock is over.
  // The clock is meant, because the caller lives on while this process does not run. A later call
  // with the same key (not 0) replaces this one, so that a client which reconnects leaves nothing
  // behind.
  void Await(uint64_t key, absl::Duration patience, Attempt attempt) ABSL_LOCKS_EXCLUDED(mutex_);

  // Time has passed.
  void Tick() ABSL_LOCKS_EXCLUDED(mutex_);
  // Tries at once, as happens every second, what the disk of the journal has refused.
  void TryJournalAgain() ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether something waits for the journal.
  bool awaits_journal() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Answers all that wait, with kStopping, as will be every later Await(); no more ticks, and
  // nothing is kept any more: effects that wait for the journal are dropped. Joins the
  // timer thread: not from an attempt or a delivery. Repeats are harmless.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Waiter {
    uint64_t key = 0;
    absl::Time deadline;  // by the clock
    Attempt attempt;
  };

  struct Answer {
    Delivery deliver;
    absl::Time not_after = absl::InfiniteFuture();  // by the clock: then whether it is kept or not
  };

  void RunUntyped(absl::FunctionRef<void(Coordinator&, absl::Time)> call)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void RunTimer() ABSL_LOCKS_EXCLUDED(mutex_);
  // The time for the coordinator, which is told of the gap that ends here, if one does.
  absl::Time Now() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Asks the waiters for answers, as long as that gives new ones.
  void AskWaiters(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Asks the waiter of this key, if there is one.
  void AskWaiter(uint64_t key, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndWaiters(absl::Time now, Occasion occasion, absl::FunctionRef<bool(const Waiter&)> which)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // A Batch is what leaves together.
  struct Batch {
    std::vector<Effect> effects;
    std::vector<Answer> answers;
  };
  // Is called at the end of each call. It has the effects carried out, or puts them off until the
  // journal has what they follow from. Returns the answers that may be delivered now.
  std::vector<Answer> Release() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Answer> CarryOutAll(Batch batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Answers that wait for the journal, and do not any longer.
  std::vector<Answer> TakeOverdue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Keep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnKept() ABSL_LOCKS_EXCLUDED(mutex_);

  Clock* const clock_;
  const absl::Duration tick_;
  mutable absl::Mutex mutex_;
  RunningTime time_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Coordinator> coordinator_ ABSL_GUARDED_BY(mutex_);
  CarryOut carry_out_ ABSL_GUARDED_BY(mutex_);
  std::vector<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
  std::vector<Answer> answered_ ABSL_GUARDED_BY(mutex_);  // by the call that runs
  uint64_t asked_at_version_ ABSL_GUARDED_BY(mutex_) = 0;
  host::CoordinatorJournal* journal_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool has_left_journal_ ABSL_GUARDED_BY(mutex_) = false;  // nothing is kept, and nothing leaves
  absl::Time journal_ticked_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  MemoryRecords records_ ABSL_GUARDED_BY(mutex_);
  uint64_t kept_version_ ABSL_GUARDED_BY(mutex_) = 0;         // of the memory that was written last
  CoordinatorRecord keeping_record_ ABSL_GUARDED_BY(mutex_);  // that has it
  CoordinatorRecord kept_record_ ABSL_GUARDED_BY(mutex_);     // the last one that is on disk
  std::optional<Batch> keeping_ ABSL_GUARDED_BY(mutex_);      // leaves once that is on disk
  Batch next_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread timer_;
};

}  // namespace lodestar::rpc
