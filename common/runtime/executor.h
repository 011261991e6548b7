// Where work that must not run on a network thread runs. Injected; nothing else starts threads for
// short tasks.
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
  // Runs `task` once, at some time, on some thread. Thread-safe; tasks may schedule tasks.
  virtual void Schedule(Task task) = 0;
  // How many tasks can run at the same time; at least 1.
  virtual int num_threads() const = 0;
};

// A fixed number of threads and one queue without a limit, first in, first out.
class ThreadPool : public Executor {
 public:
  // `name` shows in debuggers (the first 15 bytes). `num_threads` below 1 counts as 1.
  explicit ThreadPool(int num_threads, const std::string& name = "pool");
  // Runs what was scheduled before, and what those tasks schedule, then joins.
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

// Runs each task inside Schedule(): for tests and single-threaded programs.
class InlineExecutor : public Executor {
 public:
  void Schedule(Task task) override { std::move(task)(); }
  int num_threads() const override { return 1; }
};

// Calls function(i) for 0 <= i < n, in any order, on the executor's threads and on this one.
// Blocks until all calls have returned. May be called from a task of the same executor: the calling
// thread does what no other thread takes.
void ParallelFor(Executor& executor, int64_t n, absl::FunctionRef<void(int64_t)> function);

}  // namespace lodestar
