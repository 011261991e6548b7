// Whether and how a job comes to its end: it is paused, stopped, held for the last save, fails, or
// its servers exit. JobEnding remembers why, and decides for how long workers and servers are
// waited for then. The caller passes facts in, and words and carries out the verdicts.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/runtime/ids.h"

namespace lodestar {

// No work is handed out, and all stays as it is.
struct JobPause {
  std::string reason;
  absl::Time since;  // of this process
};

// A worker that was dropped because it held up the end.
struct MissedReport {
  std::string worker;
  Round round;
  friend bool operator==(const MissedReport&, const MissedReport&) = default;
};

class JobEnding {
 public:
  struct Config {
    // The time for the rounds at hand of a job that is stopped.
    absl::Duration stop_timeout;
    absl::Duration lease;
  };

  // What outlives the coordinator's process, beside the pause, which is an order.
  struct Memory {
    std::optional<std::string> stop_reason;
    std::optional<absl::Time> stop_requested_at;
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  // For workers to push again what a server that was away has not taken.
  static constexpr absl::Duration kHandInTime = absl::Seconds(2);
  // For workers without a round at hand to leave once the job is over; they learn it within
  // seconds.
  static constexpr absl::Duration kFarewellTime = absl::Minutes(1);
  // For servers to hear that they are to exit: within ten seconds they notice a dead connection,
  // and connect again.
  static constexpr absl::Duration kExitTime = absl::Seconds(15);

  explicit JobEnding(const Config& config) : config_(config) {}
  Memory memory() const { return {stop_reason_, stop_requested_at_}; }
  void Resume(Memory memory, absl::Time now);

  // The pause stays over all incarnations of the servers. It keeps its beginning if the reason
  // changes.
  void Pause(absl::string_view reason, absl::Time now);
  void EndPause() { pause_.reset(); }
  const std::optional<JobPause>& pause() const { return pause_; }
  // A stop ends it.
  bool is_paused() const { return pause_.has_value() && !is_stopping(); }

  // An operator, or the job upstream, stops this one. Requires: !is_stopping().
  void RequestStop(absl::string_view reason, absl::Time now);
  bool is_stopping() const { return stop_reason_.has_value(); }
  const std::optional<std::string>& stop_reason() const { return stop_reason_; }
  // Not set means that RequestStop() was not called: the job goes on, or the run has diverged.
  std::optional<absl::Time> stop_requested_at() const { return stop_requested_at_; }

  // The servers cannot go on.
  void Fail(const absl::Status& failure) { failure_ = failure; }
  // The run has diverged: the job fails and stops.
  void FailDiverged(const absl::Status& failure, absl::string_view stop_reason);
  const absl::Status& failure() const { return failure_; }
  // The job fails with this error once the last save is over. Returns false if it fails with
  // another one already.
  bool FailOnceSaved(const absl::Status& failure);
  const absl::Status& failure_once_saved() const { return failure_once_saved_; }

  // A process waits to exit until the last save is over, at the most for `patience`: no work is
  // handed out. Returns false if it waits already.
  bool AwaitSave(absl::string_view asker, absl::Duration patience, absl::Time now);
  // The process waits no more. Returns true if none waits then, and work is handed out again.
  bool ForgetAsker(absl::string_view asker);
  bool is_work_held() const { return !hold_reason_.empty(); }
  const std::string& hold_reason() const { return hold_reason_; }
  // Returns whether the last save waits no longer for a server that is away.
  bool GivesUpServers(absl::Time now) const { return is_work_held() && now >= away_until_; }

  // Returns whether workers have held up the last save, or a stop, for as long as they may. What
  // waits for a server, or a save that has ended, is held up by no worker. `back_at`: when a server
  // was back the last time.
  bool IsHeldUp(bool is_saving, bool is_shard_away, absl::Time back_at, absl::Time now) const;
  // From then on workers that hold it up are dropped.
  absl::Time drop_missing_at() const { return drop_missing_at_; }
  // Workers were dropped for that.
  void OnDropped(const std::vector<MissedReport>& missed);
  const std::vector<MissedReport>& not_waited_for() const { return not_waited_for_; }

  // Nothing but the leaving of workers is waited for.
  void OnOver(absl::Time now);
  absl::Time over_since() const { return over_since_; }
  // Returns when a worker that is still there is let go. `report_due_at`: of the work that it has
  // at hand. Not set means that it has none.
  absl::Time LeavesBy(std::optional<absl::Time> report_due_at) const;

  // The servers exit. `untold`: shards whose servers are to say that they go.
  void Exit(std::set<int> untold, absl::Time now);
  void OnExiting(int shard) { exit_untold_.erase(shard); }
  bool should_exit() const { return should_exit_; }
  const std::set<int>& exit_untold() const { return exit_untold_; }
  // Returns whether a server may not have heard that it is to exit, and has time to connect again.
  bool AwaitsServers(absl::Time now) const { return !exit_untold_.empty() && now < exit_by_; }

  // The servers begin a new incarnation.
  void Restart();

 private:
  // Returns when the time for the rounds at hand of a job that is stopped is over.
  absl::Time StopDeadline() const;

  Config config_;
  std::optional<JobPause> pause_;
  std::optional<std::string> stop_reason_;
  std::optional<absl::Time> stop_requested_at_;
  absl::Status failure_;
  absl::Status failure_once_saved_;
  std::string hold_reason_;       // empty if work is handed out
  std::set<std::string> askers_;  // for the last save
  absl::Time away_until_ = absl::InfinitePast();
  absl::Time drop_missing_at_ = absl::InfiniteFuture();
  std::vector<MissedReport> not_waited_for_;
  absl::Time over_since_ = absl::InfiniteFuture();
  bool should_exit_ = false;
  std::set<int> exit_untold_;
  absl::Time exit_by_ = absl::InfiniteFuture();
};

}  // namespace lodestar
