// BlockingCode: code of a simulated process that blocks (the workload of a site and its server's
// half of it), in a run in which nothing may. It has a thread of its own, which runs only while the
// thread of the run stands still and waits for it. So one thing happens at a time, as in all of a
// run, and a seed is a run.
#pragma once

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/runtime/clock.h"
#include "tests/simulation/world.h"

namespace lodestar::simulation {

// It is the Clock of the code. While the code waits by this clock, the run goes on, until what is
// waited for has happened in the process, or the time is over in it.
class BlockingCode final : public Clock {
 public:
  explicit BlockingCode(Process* process);
  // The code has ended: see End().
  ~BlockingCode() override;

  // Runs `code` until it waits, and then, as the process goes on, to its end. One at a time.
  void Run(std::function<void()> code);
  // The process has ended, and only this code looks at what the process had. The code runs to its
  // end. No time passes, and all that ends its waits has happened by now.
  void End();

  absl::Time Now() override { return process_->world().Now(); }
  void Sleep(absl::Duration duration) override;
  bool Await(absl::Mutex& mutex, const absl::Condition& condition, absl::Duration timeout) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

 private:
  enum class Turn { kRun, kCode };

  // Goes on with the code if what it waits for is there.
  void Look();
  // Called in the thread of the run. Returns once the code waits or has ended.
  void Resume();
  // Called in either thread. Gives the turn away, and waits until it is there again.
  void Pass(Turn to);
  void Give(Turn turn);
  void AwaitTurn(Turn turn);

  Process* const process_;
  std::thread thread_;
  absl::Mutex mutex_;
  Turn turn_ ABSL_GUARDED_BY(mutex_) = Turn::kRun;

  // Only the thread that has the turn uses the members below.
  bool is_running_ = false;  // the code: it has not ended
  bool is_ending_ = false;
  absl::Mutex* waits_with_ = nullptr;
  const absl::Condition* waits_for_ = nullptr;  // null if it does not wait
  absl::Time waits_until_;
};

}  // namespace lodestar::simulation
