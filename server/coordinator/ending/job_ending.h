// SPDX-License-Identifier: Apache-2.0

// JobEnding holds the state of the end of a job, and decides about it:
// - whether the job is paused, stopped or failed, and why;
// - whether work is handed out while a process waits for the last save;
// - how long the job waits for workers and servers;
// - when the servers exit.
// The caller passes facts in, writes the messages and carries out the decisions.
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

namespace lodestar::ending {

// A pause of the job: no work is handed out, and the state stays as it is.
struct JobPause {
  std::string reason;
  absl::Time since;  // when this process learned of the pause
};

// A worker that was dropped because its report of `round` did not come in time. The last save or a
// stop was waiting for the report.
struct MissedReport {
  std::string worker;
  Round round;
  friend bool operator==(const MissedReport&, const MissedReport&) = default;
};

class JobEnding {
 public:
  struct Config {
    // How long the workers of a stopped job have to report their present rounds.
    absl::Duration stop_timeout;
    absl::Duration lease;
  };

  // The state that outlives the coordinator's process. StandingOrders stores the pause.
  struct Memory {
    std::optional<std::string> stop_reason;
    std::optional<absl::Time> stop_requested_at;
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  // Time that workers get after a server is back. In this time, they push again the contributions
  // that the server has not received.
  static constexpr absl::Duration kHandInTime = absl::Seconds(2);
  // Time that workers without a round get to leave after the job is over. They hear of the end
  // within seconds.
  static constexpr absl::Duration kFarewellTime = absl::Minutes(1);
  // Time that servers get to hear that they must exit. A server notices a dead connection within
  // ten seconds, and connects again.
  static constexpr absl::Duration kExitTime = absl::Seconds(15);

  // Returns the part of `patience` that AwaitSave() leaves for writing the checkpoint.
  static absl::Duration WriteTimeOf(absl::Duration patience) { return patience / 2; }

  explicit JobEnding(const Config& config) : config_(config) {}
  Memory memory() const { return {stop_reason_, stop_requested_at_}; }
  void Resume(Memory memory, absl::Time now);

  // Pauses the job. The pause continues over all incarnations of the servers. If the job is paused
  // already, only the reason changes, and `since` stays.
  void Pause(absl::string_view reason, absl::Time now);
  void EndPause() { pause_.reset(); }
  const std::optional<JobPause>& pause() const { return pause_; }
  // Returns true if the job is paused and is not stopping.
  bool is_paused() const { return pause_.has_value() && !is_stopping(); }

  // Records that an operator or the upstream job stops this job. Requires: !is_stopping().
  void RequestStop(absl::string_view reason, absl::Time now);
  bool is_stopping() const { return stop_reason_.has_value(); }
  const std::optional<std::string>& stop_reason() const { return stop_reason_; }
  // Returns the time of the RequestStop() call. Not set means that RequestStop() was not called.
  std::optional<absl::Time> stop_requested_at() const { return stop_requested_at_; }

  // Fails the job because the servers cannot go on.
  void Fail(const absl::Status& failure) { failure_ = failure; }
  // Fails and stops the job because the run has diverged.
  void FailDiverged(const absl::Status& failure, absl::string_view stop_reason);
  const absl::Status& failure() const { return failure_; }
  // Sets the error with which the job fails after the last save. Returns false if another error was
  // set before. The earlier error stays.
  bool FailOnceSaved(const absl::Status& failure);
  const absl::Status& failure_once_saved() const { return failure_once_saved_; }

  // Records that the process `asker` waits for the last save before it exits. It waits for at most
  // `patience`. No work is handed out while a process waits. Returns false if `asker` was already
  // waiting.
  bool AwaitSave(absl::string_view asker, absl::Duration patience, absl::Time now);
  // Records that the process `asker` no longer waits. If it was the last process that waited, work
  // is handed out again, and the function returns true.
  bool ForgetAsker(absl::string_view asker);
  bool is_work_held() const { return !hold_reason_.empty(); }
  const std::string& hold_reason() const { return hold_reason_; }
  // Returns true if the last save must not wait any longer for servers that are away.
  bool GivesUpServers(absl::Time now) const { return is_work_held() && now >= away_until_; }

  // Returns true if workers whose reports are missing must be dropped, because the last save or a
  // stop has waited long enough. Returns false in these cases:
  // - Neither a save nor a stop is in progress.
  // - A server is away.
  // - A server came back at `back_at`, and kHandInTime is not over yet.
  bool IsHeldUp(bool is_saving, bool is_shard_away, absl::Time back_at, absl::Time now) const;
  // Returns the time at which the last save or a stop has waited long enough for missing reports.
  // Their workers are then dropped.
  absl::Time drop_missing_at() const { return drop_missing_at_; }
  // Records which workers were dropped because the last save or a stop waited for their reports.
  void OnDropped(const std::vector<MissedReport>& missed);
  const std::vector<MissedReport>& not_waited_for() const { return not_waited_for_; }

  // Records that the job is over. From now on, the servers wait only for workers to leave.
  void OnOver(absl::Time now);
  absl::Time over_since() const { return over_since_; }
  // Returns the time by which the worker must have left. After that time, the servers exit without
  // it. `report_due_at` is when the report of the worker's present round is due. Not set means that
  // the worker computes no round.
  absl::Time LeavesBy(std::optional<absl::Time> report_due_at) const;

  // Records that the servers must exit. `untold` are the shards whose servers have not yet
  // confirmed that they exit.
  void Exit(std::set<int> untold, absl::Time now);
  void OnExiting(int shard) { exit_untold_.erase(shard); }
  bool should_exit() const { return should_exit_; }
  const std::set<int>& exit_untold() const { return exit_untold_; }
  // Returns true if a server has not confirmed its exit and still has time to do so.
  bool AwaitsServers(absl::Time now) const { return !exit_untold_.empty() && now < exit_by_; }

  // Resets the state for a new incarnation of the servers.
  void Restart();

 private:
  // Returns the time at which the stop_timeout of a stopped job ends. InfiniteFuture() means that
  // RequestStop() was not called.
  absl::Time StopDeadline() const;

  Config config_;
  std::optional<JobPause> pause_;
  std::optional<std::string> stop_reason_;
  std::optional<absl::Time> stop_requested_at_;
  absl::Status failure_;
  absl::Status failure_once_saved_;
  std::string hold_reason_;       // empty means that work is handed out
  std::set<std::string> askers_;  // processes that wait for the last save
  absl::Time away_until_ = absl::InfinitePast();
  absl::Time drop_missing_at_ = absl::InfiniteFuture();
  std::vector<MissedReport> not_waited_for_;
  absl::Time over_since_ = absl::InfiniteFuture();
  bool should_exit_ = false;
  std::set<int> exit_untold_;
  absl::Time exit_by_ = absl::InfiniteFuture();
};

}  // namespace lodestar::ending
