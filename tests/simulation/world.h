// World: the time of one simulated run, what happens in it, in which order, and the story of it.
// One thread; nothing waits. And Process: what runs in it, crashes, freezes and starts again.
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

  // `story` is told what happens, a line at a time. Null means that nothing is told.
  World(uint64_t seed, Story story) : chance_(seed), story_(std::move(story)) {}

  absl::Time Now() override { return absl::UnixEpoch() + absl::Nanoseconds(now_ns_); }
  // Nothing sleeps here.
  void Sleep(absl::Duration duration) override;

  Chance& chance() { return chance_; }
  // Events of one moment happen in the order in which they were planned.
  void After(absl::Duration delay, Callback callback);
  // Makes the next event happen; false if there is none.
  bool Step();
  // Nothing happens any more, and what was planned is gone, while all that it refers to is there.
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
  std::vector<Event> events_;  // a heap
};

// Lives may follow one another; what a life has planned ends with it.
class Process {
 public:
  Process(World* world, std::string name) : world_(world), name_(std::move(name)) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  World& world() { return *world_; }
  const std::string& name() const { return name_; }
  bool is_alive() const { return is_alive_; }
  bool is_frozen() const { return is_frozen_; }
  // Returns the number of the life that runs, or has run last.
  int64_t life() const { return life_; }

  void Begin();
  void End();
  // Nothing happens in it before Thaw(); then all of it, in order.
  void Freeze() { is_frozen_ = true; }
  void Thaw();

  // Happens in this life, or not at all.
  void After(absl::Duration delay, World::Callback callback);
  // Happens now, or when the process thaws, if that life still runs. For what others have sent.
  void Take(int64_t life, World::Callback callback);
  // `listener` is called after each thing that has happened in the process. Null means that nothing
  // is called.
  void OnEach(std::function<void()> listener) { listener_ = std::move(listener); }

 private:
  // It happens: the process runs, and is not frozen.
  void Do(World::Callback callback);

  World* const world_;
  const std::string name_;
  bool is_alive_ = false;
  bool is_frozen_ = false;
  int64_t life_ = 0;
  std::deque<World::Callback> deferred_;
  std::function<void()> listener_;
};

// Tasks of a process; one at a time, in order, each a moment after it was given, so that all else
// may come between.
class ProcessExecutor final : public Executor {
 public:
  // `after_task` is called after each, unless the process has ended.
  ProcessExecutor(
      Process* process, absl::Duration longest_delay, std::function<void()> after_task = [] {})
      : process_(process), longest_delay_(longest_delay), after_task_(std::move(after_task)) {}

  void Schedule(Task task) override;
  int num_threads() const override { return 1; }
  // Does what is left at once: the process has ended, and nothing of it is heard outside. False if
  // there was nothing.
  bool Drain();
  // What its tasks work on does not answer: none is done before Resume().
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
