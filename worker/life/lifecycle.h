// SPDX-License-Identifier: Apache-2.0

// Lifecycle decides what a worker does next, from its start to its exit code. The owner passes in
// events and the time. Each event returns effects: at most one long task (a call, a round), and
// actions that are done at once. The owner (worker/worker.h, or a simulator) carries the effects
// out in order. Lifecycle has no thread, lock, connection or model, and never waits.
//
//              +------------------- back off <-----------------------+
//              v                                                     | the life has ended, and
//   start -> connect -> prepare -> try paths -> join -> ask <-> work-+ another may go better
//                                   |     ^              |        |
//                                   back off             | done, told to stop, refused
//                                                        v
//                                                say good-bye -> finish
//
// A life has one incarnation number from the coordinator. A broken connection does not end the
// life. After `connect`, the incarnations of the worker and of the servers decide:
// - If both are the same as before, the life continues. The worker must still deliver its last
//   report or its present round.
// - If one of them is new, a new life begins. The worker has nothing to deliver.
//
// A worker that is told to stop does this:
// - It finishes the present round. If the round is a window of local steps, it makes only the steps
//   that fit into the time that is left (worker/trainer/window_end.h).
// - It asks the coordinator whether another round was already granted. With deferred contributions
//   (local_sgd with fragments or overlap), that round contributes the steps of the last round.
// - It leaves. The final status names the work that was not handed in.
//
// Such a worker stops waiting for servers after leave_timeout, or when its machine stops.
//
// If no server answers for as long as Config::connect allows, the worker ends with Unavailable. The
// job may be over then, or the address may be wrong.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/logging/logging.h"
#include "common/messages/cluster_messages.h"
#include "common/net/connect_patience.h"
#include "common/runtime/remedy.h"

namespace lodestar::life {

// A life of this worker, identified by its incarnation and the incarnation of the servers. Each
// contribution and report belongs to one LifeId.
struct LifeId {
  uint64_t server_incarnation = 0;
  Incarnation incarnation;
  friend bool operator==(const LifeId&, const LifeId&) = default;
};

// A request to stop, with the time that is left.
struct StopRequest {
  // Time for more local steps. Zero means that the present step is the last.
  absl::Duration grace = absl::ZeroDuration();
  // True if the machine stops after `grace`. In that case leave_timeout does not matter: the worker
  // waits for servers until shortly before the machine stops.
  bool machine_goes = false;
};

// Makes the decisions of one worker. Not thread-safe. All times must come from one clock that never
// goes back.
class Lifecycle {
 public:
  struct Config {
    absl::Duration first_backoff = absl::Milliseconds(100);
    absl::Duration longest_backoff = absl::Seconds(1);
    absl::Duration leave_timeout = absl::Seconds(30);
    net::ConnectPatience::Config connect = {};
  };

  // Tasks. The comment of each task names its event. The owner must pass in the task's result with
  // that event. Lifecycle returns the next task only after the event.

  // Ends the last connection and registers. Event: OnRegistered().
  struct Connect {};
  // Makes the job's model and data, and starts heartbeats. Event: OnPrepared().
  struct Prepare {};
  // Tests whether every server can be reached for bulk transfers. Event: OnPathsTried(). Aborted
  // means that an address leads to a server of another job, which does not know this life. The task
  // is then tried again.
  struct TryPaths {};
  // Event: OnJoined().
  struct Join {};
  struct AskForGrant {
    std::optional<messages::RoundReport> report;
    // True if the worker wants no new work.
    bool leaving = false;
  };  // Event: OnGrant().
  struct CarryOut {
    messages::Grant grant;
  };  // Evaluates, or pulls, computes and pushes. Event: OnCarriedOut().
  struct SayGoodbye {
    std::string reason;
    std::optional<messages::RoundReport> report;
  };  // Event: OnLeft().
  // The last task. The process ends with `status`.
  struct Finish {
    absl::Status status;
  };

  // Actions that are done at once. CancelCalls and CancelTransfers make the present task end soon.
  // The owner must still pass in the event of that task.

  // Ends the task's calls to the coordinator.
  struct CancelCalls {};
  // Ends all present and later transfers of the worker's connection to the servers.
  struct CancelTransfers {};
  struct Tell {
    logging::LogLevel level = logging::LogLevel::kInfo;
    std::string text;
  };
  struct TellWait {
    // Why the cluster waits. Empty means that it does not wait.
    std::string reason;
  };

  using Task =
      std::variant<Connect, Prepare, TryPaths, Join, AskForGrant, CarryOut, SayGoodbye, Finish>;
  using Effect = std::variant<Task, CancelCalls, CancelTransfers, Tell, TellWait>;
  using Effects = std::vector<Effect>;

  explicit Lifecycle(const Config& config) : config_(config), patience_(config.connect) {}

  // Starts the worker. Must be called once, before all other events.
  Effects Start(absl::Time now);

  // Events with the results of tasks.
  Effects OnRegistered(absl::Time now, const absl::StatusOr<LifeId>& life);
  Effects OnPrepared(absl::Time now, const absl::Status& status);
  Effects OnPathsTried(absl::Time now, const absl::Status& status);
  Effects OnJoined(absl::Time now, const absl::Status& status);
  Effects OnGrant(absl::Time now, const absl::StatusOr<messages::Grant>& grant);
  // `leaves_steps` means that steps of this grant were computed but will be contributed to a later
  // round.
  Effects OnCarriedOut(absl::Time now, const absl::StatusOr<messages::RoundReport>& report,
                       bool leaves_steps = false);
  Effects OnLeft(absl::Time now, const absl::Status& status);

  // Events that are not results of tasks. If several requests to stop come, the grace that ends
  // first counts.
  Effects OnStopRequested(absl::Time now, const StopRequest& request = {});
  // Must be called when a heartbeat was answered with Aborted: the coordinator has ended this life.
  Effects OnLifeLost(absl::Time now, const absl::Status& status);
  // Must be called when a heartbeat was answered, with the reason why the cluster waits. An empty
  // text means that it does not wait.
  Effects OnHeartbeat(const std::string& waiting_for);
  void OnHeartbeatUnanswered(const absl::Status& status) { unanswered_ = status; }
  // Must be called when the worker, in the present round, begins to compute ("compute") or to wait
  // for servers ("pull", "push").
  void OnActivity(absl::Time now, absl::string_view activity);
  // Must be called when the time next_wake() is reached. Earlier or additional calls do no harm.
  Effects OnTick(absl::Time now);
  absl::Time next_wake() const;

  // Returns a copy of `report` whose `wait` also has the time that the worker has waited for
  // grants. report.computed_ahead is subtracted from that time.
  messages::RoundReport WithWait(messages::RoundReport report) const;
  // Returns a message that says what the worker waits for, or why it is not connected. Empty means
  // that it computes.
  std::string Standing() const;
  static constexpr absl::string_view kPrepares = "prepares model and data";
  static constexpr absl::string_view kComputes = "computes";
  static constexpr absl::string_view kEndsLife = "ends its incarnation";
  // Returns a name for the present work if the worker can do it without other processes: kPrepares,
  // kComputes or kEndsLife. kEndsLife means that the life has ended and calls and transfers are
  // being cancelled. Otherwise returns an empty text.
  absl::string_view OwnWork() const;
  // Returns the activity that heartbeats report.
  std::string activity() const;
  bool is_stopping() const { return is_stopping_; }
  // After a request to stop: returns the time left for local steps and for handing them in. Never
  // negative.
  absl::Duration time_left(absl::Time now) const;
  // Returns true if the life has ended, so that servers will not accept its further work.
  bool is_life_over() const { return !lost_.ok(); }

 private:
  enum class State : uint8_t {
    kNotStarted,
    kConnecting,
    kPreparing,
    kTryingPaths,
    kJoining,
    kAsking,
    kWorking,
    kBackingOff,
    kLeaving,
    kFinished,
  };

  Effects Go(State state, absl::Time now, Task task);
  Effects Ask(absl::Time now);
  // Ends the life, or the attempt to begin one, because of `status`. An OK status means that the
  // job is done.
  Effects EndLife(absl::Time now, const absl::Status& status);
  Effects Leave(absl::Time now, std::string reason);
  // Returns a log message: the worker was told to stop and waits for the servers until `until`.
  // `owed` says why, such as "round 5 is still being handed in".
  Effect TellPatience(absl::string_view owed, absl::Time until) const;
  Effects BackOff(absl::Time now, const absl::Status& reason);
  // Ends the worker, because no server has answered for the time in config_.connect.
  Effects GiveUpOnServers(const absl::Status& reason);
  // Returns true if the worker should try another life. If another process holds this worker's
  // name, also counts the renewals of its lease, to find out whether that process is alive. Adds
  // log messages to `effects`.
  bool MayTryAgain(absl::Time now, const absl::Status& status, Effects& effects);
  Effects Conclude(const absl::Status& status);
  // Returns the status of Finish for a worker that was told to stop. `left` is the result of
  // SayGoodbye.
  absl::Status OutcomeOfStop(const absl::Status& left) const;
  // Returns the work that was not handed in, such as "round 5 is not handed in". Empty means none.
  std::string WhatIsLost() const;
  absl::Status KeptWaiting() const;
  // If the life has ended, returns the reason. Otherwise returns `status`, the error of a task.
  absl::Status Cause(const absl::Status& status) const { return lost_.ok() ? status : lost_; }
  // Returns true if a life has begun and has not ended.
  bool IsLiving() const;
  // Returns true if the present task or activity may wait for servers. Returns false in SayGoodbye,
  // which has its own time limit.
  bool waits_for_servers() const;
  absl::Duration PauseAfter(int failures) const;

  const Config config_;
  State state_ = State::kNotStarted;
  // Time when the present state or activity began, or, if later, when the worker was told to stop.
  absl::Time since_;
  // Error of the last heartbeat. OK means that it was answered.
  absl::Status unanswered_;
  std::string round_activity_;
  // In kAsking: the reason in the coordinator's last answer if that answer was kWait. Empty if that
  // answer brought work.
  std::string wait_reason_;

  // The last life, which the next registration may continue. Not set means that the next life is
  // new.
  std::optional<LifeId> life_;
  // Why the present life has ended. OK means that it has not.
  absl::Status lost_;
  // The report that the coordinator has not confirmed yet.
  std::optional<messages::RoundReport> unsent_report_;
  // The round that was granted and is not yet handed in.
  std::optional<Round> round_at_hand_;
  // With deferred contributions: the granted round in which the worker computed steps that a later
  // round must contribute. Not set means that there are no such steps.
  std::optional<Round> steps_in_hand_;
  absl::Time asked_at_;
  // Time spent waiting for grants since the last report.
  absl::Duration waited_;
  bool asks_leaving_ = false;

  bool is_stopping_ = false;
  // After a request to stop: the time at which the worker must stop computing.
  absl::Time gone_by_ = absl::InfiniteFuture();
  // Time when the machine stops, if that is known.
  absl::Time machine_ends_ = absl::InfiniteFuture();
  // True if leave_timeout limits how long a worker that is stopping waits for servers. False if
  // only the end of the machine limits it.
  bool has_own_patience_ = false;
  // True if the worker was told to stop and does not wait for the servers any longer.
  bool gave_up_ = false;
  // The status with which the last life, or the last attempt to begin one, has ended.
  absl::Status end_;
  // After a request to stop: the coordinator's reason for having no more work.
  std::optional<std::string> dismissal_;
  bool is_refused_ = false;

  // In kBackingOff: true if the life continues and only TryPaths is repeated.
  bool retries_paths_ = false;
  // In kBackingOff: when to try again.
  absl::Time wake_at_;
  int path_failures_ = 0;  // Failures in a row.
  int failed_lives_ = 0;   // Failures in a row.
  // True if the log has said why the worker cannot join. Reset when it joins.
  bool is_join_told_ = false;
  bool did_work_ = false;  // True if this life did work.
  // The next four members are used while another process holds this worker's name with a lease.
  // End of that lease, as of the first refusal or the last renewal that this worker has found.
  std::optional<absl::Time> held_until_;
  // The server's count of renewals of that lease when held_until_ was set.
  std::optional<int64_t> server_count_;
  // Longest remaining time of the lease that a server has reported.
  absl::Duration longest_rest_;
  // Number of renewals that this worker has found.
  int times_found_renewed_ = 0;
  UnknownCalls unknown_calls_;
  net::ConnectPatience patience_;
};

}  // namespace lodestar::life
