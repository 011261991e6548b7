// SPDX-License-Identifier: Apache-2.0

// Executors run work that must not run on a network thread. Code gets its executor from its caller,
// and starts no threads for short tasks itself.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"

namespace lodestar {

class Executor {
 public:
  using Task = absl::AnyInvocable<void() &&>;

  virtual ~Executor() = default;
  // Runs `task` once, on any thread: inside Schedule() or later. Thread-safe. Tasks may schedule
  // tasks.
  virtual void Schedule(Task task) = 0;
  // Returns the number of tasks that can run at the same time, at least 1.
  virtual int num_threads() const = 0;
};

// A fixed number of threads that take tasks from one unlimited queue, first in, first out.
class ThreadPool : public Executor {
 public:
  // The first 15 bytes of `name` are the threads' name in debuggers. `num_threads` below 1 counts
  // as 1.
  explicit ThreadPool(int num_threads, const std::string& name = "pool");
  // Runs all scheduled tasks, and the tasks that they schedule. Then joins the threads.
  ~ThreadPool() override;

  void Schedule(Task task) override ABSL_LOCKS_EXCLUDED(mutex_);
  int num_threads() const override { return static_cast<int>(threads_.size()); }

 private:
  void RunTasks() ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasTaskOrMustStop() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// Runs each task inside Schedule(). For tests and single-threaded programs.
class InlineExecutor : public Executor {
 public:
  void Schedule(Task task) override { std::move(task)(); }
  int num_threads() const override { return 1; }
};

// Calls function(i) for 0 <= i < n, in any order, on the executor's threads and on the calling
// thread. Blocks until all calls have returned. A task of the same executor may call this without
// deadlock, because the calling thread runs all indices that no other thread runs.
void ParallelFor(Executor& executor, int64_t n, absl::FunctionRef<void(int64_t)> function);

}  // namespace lodestar
