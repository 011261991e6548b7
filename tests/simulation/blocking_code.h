// SPDX-License-Identifier: Apache-2.0

// BlockingCode runs code that blocks (the workload of a site and its server's half of it) in a
// simulated process. Nothing else in a run may block. The code has a thread of its own, which runs
// only while the thread of the run waits for it. So only one thing happens at a time, as everywhere
// in a run, and a seed gives the same run again.
#pragma once

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/runtime/clock.h"
#include "tests/simulation/world.h"

namespace lodestar::simulation {

// BlockingCode is also the Clock of the code. While the code waits by this clock, the run continues
// until the process fulfils the condition, or until the time is over.
class BlockingCode final : public Clock {
 public:
  explicit BlockingCode(Process* process);
  // The code must have ended: see End().
  ~BlockingCode() override;

  // Starts `code` and returns when it waits. Events of the process then continue the code, to its
  // end. Only one code may run at a time.
  void Run(std::function<void()> code);
  // Lets the code run to its end after the process has ended. Only this code still uses what the
  // process had. No time passes, and every event that ends its waits has already happened.
  void End();

  absl::Time Now() override { return process_->world().Now(); }
  void Sleep(absl::Duration duration) override;
  bool Await(absl::Mutex& mutex, const absl::Condition& condition, absl::Duration timeout) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

 private:
  enum class Turn { kRun, kCode };

  // Continues the code if its condition holds or its time is over.
  void Look();
  // Continues the code. Called in the thread of the run. Returns once the code waits or has ended.
  void Resume();
  // Gives the turn away, and waits until it comes back. Called in either thread.
  void Pass(Turn to);
  void Give(Turn turn);
  void AwaitTurn(Turn turn);

  Process* const process_;
  std::thread thread_;
  absl::Mutex mutex_;
  Turn turn_ ABSL_GUARDED_BY(mutex_) = Turn::kRun;

  // Only the thread that has the turn uses the members below.
  bool is_running_ = false;  // true until the code has ended
  bool is_ending_ = false;
  absl::Mutex* waits_with_ = nullptr;
  const absl::Condition* waits_for_ = nullptr;  // null means that the code does not wait
  absl::Time waits_until_;
};

}  // namespace lodestar::simulation
