// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/executor.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

namespace lodestar {

ThreadPool::ThreadPool(int num_threads, const std::string& name) {
  constexpr size_t kMaxThreadNameBytes = 15;  // limit of Linux, without the final zero
  const std::string thread_name = name.substr(0, kMaxThreadNameBytes);
  for (int i = 0; i < std::max(num_threads, 1); ++i) {
    threads_.emplace_back([this] { RunTasks(); });
    pthread_setname_np(threads_.back().native_handle(), thread_name.c_str());
  }
}

ThreadPool::~ThreadPool() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Schedule(Task task) {
  absl::MutexLock lock(&mutex_);
  tasks_.push_back(std::move(task));
}

bool ThreadPool::HasTaskOrMustStop() const { return !tasks_.empty() || stopping_; }

void ThreadPool::RunTasks() {
  absl::MutexLock lock(&mutex_);
  while (true) {
    mutex_.Await(absl::Condition(this, &ThreadPool::HasTaskOrMustStop));
    // This thread ends even if another thread still runs a task. If that task schedules more tasks,
    // the other thread runs them.
    if (tasks_.empty()) return;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    mutex_.Unlock();
    std::move(task)();
    // The task is destroyed without the lock, because the destructors of captured objects may lock
    // or schedule.
    task = nullptr;
    mutex_.Lock();
  }
}

namespace {

// The state of one ParallelFor(), shared with its tasks. If a task starts after ParallelFor() has
// returned, it finds no index left and does not call `function`.
struct Loop {
  Loop(int64_t n, absl::FunctionRef<void(int64_t)> function) : n(n), function(function) {}

  void Run() {
    int64_t done_here = 0;
    for (int64_t i = next.fetch_add(1); i < n; i = next.fetch_add(1)) {
      function(i);
      ++done_here;
    }
    if (done_here == 0) return;
    absl::MutexLock lock(&mutex);
    num_done += done_here;
  }

  const int64_t n;
  const absl::FunctionRef<void(int64_t)> function;
  std::atomic<int64_t> next{0};
  absl::Mutex mutex;
  int64_t num_done ABSL_GUARDED_BY(mutex) = 0;
};

}  // namespace

void ParallelFor(Executor& executor, int64_t n, absl::FunctionRef<void(int64_t)> function) {
  if (n <= 0) return;
  auto loop = std::make_shared<Loop>(n, function);
  const int64_t num_tasks = std::min<int64_t>(n - 1, executor.num_threads());
  for (int64_t i = 0; i < num_tasks; ++i) {
    executor.Schedule([loop] { loop->Run(); });
  }
  loop->Run();
  absl::MutexLock lock(&loop->mutex);
  loop->mutex.Await(absl::Condition(
      +[](Loop* l) ABSL_EXCLUSIVE_LOCKS_REQUIRED(l->mutex) { return l->num_done == l->n; },
      loop.get()));
}

}  // namespace lodestar
