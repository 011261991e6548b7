// SPDX-License-Identifier: Apache-2.0

// World holds the time of a simulated run, its events in their order, and the story that is told of
// it. There is one thread, and nothing waits. Process is a process in a World: it runs, crashes,
// freezes and restarts.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/runtime/clock.h"
#include "common/runtime/executor.h"
#include "tests/simulation/chance.h"

namespace lodestar::simulation {

class World final : public Clock {
 public:
  using Callback = absl::AnyInvocable<void()>;
  using Story = std::function<void(absl::string_view line)>;

  // `story` is called with each line about what happens. Null means that nothing is reported.
  World(uint64_t seed, Story story) : chance_(seed), story_(std::move(story)) {}

  absl::Time Now() override { return absl::UnixEpoch() + absl::Nanoseconds(now_ns_); }
  // Must not be called: nothing sleeps in a simulated run.
  void Sleep(absl::Duration duration) override;

  Chance& chance() { return chance_; }
  // Plans an event. Events of the same moment happen in the order in which they were planned.
  void After(absl::Duration delay, Callback callback);
  // Makes the next event happen. Returns false if there is none.
  bool Step();
  // Ends the run and destroys the planned events, while all objects that they refer to still exist.
  void Finish();
  int64_t num_events() const { return num_events_; }

  template <typename... Pieces>
  void Tell(const Pieces&... pieces) {
    if (story_ != nullptr) TellLine(absl::StrCat(pieces...));
  }
  bool has_listener() const { return story_ != nullptr; }

 private:
  struct Event {
    int64_t time_ns;
    int64_t number;
    Callback callback;
    bool operator<(const Event& other) const {  // std::push_heap puts the largest first
      return time_ns != other.time_ns ? time_ns > other.time_ns : number > other.number;
    }
  };

  void TellLine(const std::string& text);

  Chance chance_;
  const Story story_;
  int64_t now_ns_ = 0;
  int64_t num_events_ = 0;
  int64_t num_planned_ = 0;
  bool is_over_ = false;
  std::vector<Event> events_;  // a heap, next event first
};

// A process may have several lives, one after the other. Events that a life has planned end with
// it.
class Process {
 public:
  Process(World* world, std::string name) : world_(world), name_(std::move(name)) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  World& world() { return *world_; }
  const std::string& name() const { return name_; }
  bool is_alive() const { return is_alive_; }
  bool is_frozen() const { return is_frozen_; }
  // Returns the number of the current life, or of the last one.
  int64_t life() const { return life_; }

  void Begin();
  void End();
  // Holds back all events of the process until Thaw(), which makes them happen in order.
  void Freeze() { is_frozen_ = true; }
  void Thaw();

  // Plans an event that happens only if this life still runs.
  void After(absl::Duration delay, World::Callback callback);
  // Makes an event happen now, or when the process thaws, if `life` still runs. This is for
  // messages from others.
  void Take(int64_t life, World::Callback callback);
  // Sets a function that is called after each event in the process. Null means none.
  void OnEach(std::function<void()> listener) { listener_ = std::move(listener); }

 private:
  // Runs the callback. Requires: the process runs, and is not frozen.
  void Do(World::Callback callback);

  World* const world_;
  const std::string name_;
  bool is_alive_ = false;
  bool is_frozen_ = false;
  int64_t life_ = 0;
  std::deque<World::Callback> deferred_;
  std::function<void()> listener_;
};

// Runs the tasks of a process, one at a time and in order. Each runs a moment after it was
// scheduled, so that all other events may come between.
class ProcessExecutor final : public Executor {
 public:
  // `after_task` is called after each task, unless the process has ended.
  ProcessExecutor(
      Process* process, absl::Duration longest_delay, std::function<void()> after_task = [] {})
      : process_(process), longest_delay_(longest_delay), after_task_(std::move(after_task)) {}

  void Schedule(Task task) override;
  int num_threads() const override { return 1; }
  // Runs the remaining tasks at once, after the process has ended; no effect of them is seen
  // outside. Returns false if there were none.
  bool Drain();
  // Makes the disk or device of its tasks hang: no task is done before Resume().
  void Hang() { is_hanging_ = true; }
  void Resume();

 private:
  void Plan();
  void RunOne();

  Process* const process_;
  const absl::Duration longest_delay_;
  const std::function<void()> after_task_;
  std::deque<Task> tasks_;
  bool is_planned_ = false;
  bool is_hanging_ = false;
};

}  // namespace lodestar::simulation
