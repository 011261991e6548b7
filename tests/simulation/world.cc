// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/runtime/check.h"

namespace lodestar::simulation {

void World::Sleep(absl::Duration) { LODESTAR_CHECK(false) << "something sleeps in a simulation"; }

void World::After(absl::Duration delay, Callback callback) {
  if (is_over_) return;
  const int64_t delay_ns = std::max<int64_t>(absl::ToInt64Nanoseconds(delay), 0);
  events_.push_back({now_ns_ + delay_ns, num_planned_++, std::move(callback)});
  std::push_heap(events_.begin(), events_.end());
}

bool World::Step() {
  if (events_.empty()) return false;
  std::pop_heap(events_.begin(), events_.end());
  Event event = std::move(events_.back());
  events_.pop_back();
  now_ns_ = event.time_ns;
  ++num_events_;
  event.callback();
  return true;
}

void World::Finish() {
  is_over_ = true;
  events_.clear();
}

void World::TellLine(const std::string& text) {
  story_(absl::StrFormat("%12.6f  %s", static_cast<double>(now_ns_) * 1e-9, text));
}

void Process::Begin() {
  LODESTAR_CHECK(!is_alive_) << name_ << " runs already";
  is_alive_ = true;
  is_frozen_ = false;
  ++life_;
}

void Process::End() {
  is_alive_ = false;
  is_frozen_ = false;
  deferred_.clear();
}

void Process::Thaw() {
  is_frozen_ = false;
  // A callback may end the process, or freeze it again.
  while (!deferred_.empty() && is_alive_ && !is_frozen_) {
    World::Callback callback = std::move(deferred_.front());
    deferred_.pop_front();
    Do(std::move(callback));
  }
}

void Process::Do(World::Callback callback) {
  callback();
  if (is_alive_ && listener_ != nullptr) listener_();
}

void Process::After(absl::Duration delay, World::Callback callback) {
  world_->After(delay, [this, life = life_, callback = std::move(callback)]() mutable {
    Take(life, std::move(callback));
  });
}

void Process::Take(int64_t life, World::Callback callback) {
  if (!is_alive_ || life != life_) return;
  if (is_frozen_) {
    deferred_.push_back(std::move(callback));
  } else {
    Do(std::move(callback));
  }
}

void ProcessExecutor::Schedule(Task task) {
  tasks_.push_back(std::move(task));
  if (!is_planned_) Plan();
}

void ProcessExecutor::Plan() {
  is_planned_ = true;
  const absl::Duration delay =
      process_->world().chance().Between(absl::ZeroDuration(), longest_delay_);
  process_->After(delay, [this] { RunOne(); });
}

void ProcessExecutor::RunOne() {
  is_planned_ = false;
  if (tasks_.empty() || is_hanging_) return;
  Task task = std::move(tasks_.front());
  tasks_.pop_front();
  if (!tasks_.empty()) Plan();
  std::move(task)();
  after_task_();
}

void ProcessExecutor::Resume() {
  is_hanging_ = false;
  if (!is_planned_ && !tasks_.empty()) Plan();
}

bool ProcessExecutor::Drain() {
  is_planned_ = true;  // keeps tasks that these tasks schedule from being planned
  const bool has_tasks = !tasks_.empty();
  while (!tasks_.empty()) {
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    std::move(task)();
  }
  return has_tasks;
}

}  // namespace lodestar::simulation
