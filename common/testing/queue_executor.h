// SPDX-License-Identifier: Apache-2.0

// QueueExecutor runs tasks when the test says so, in the order in which they were scheduled.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

#include "common/runtime/executor.h"

namespace lodestar {

// Use it on one thread only.
class QueueExecutor final : public Executor {
 public:
  void Schedule(Task task) override { tasks_.push_back(std::move(task)); }
  int num_threads() const override { return 1; }

  size_t size() const { return tasks_.size(); }
  // Runs the first task. Requires: at least one task is scheduled.
  void RunNext() {
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    std::move(task)();
  }
  // Runs all tasks, also those that they schedule.
  void RunAll() {
    while (!tasks_.empty()) RunNext();
  }

 private:
  std::deque<Task> tasks_;
};

}  // namespace lodestar
