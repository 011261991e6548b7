// Lifecycle: what a worker does next, from its start to its exit code. It is told what has happened
// and what time it is, and answers with effects: one task at a time that takes its time (a call, a
// round), and what is done at once beside it. Nothing waits or sleeps in here: no thread, lock,
// connection or model; the owner (worker/worker.h, or a simulator) carries the effects out, in
// order.
//
//              +------------------- back off <-----------------------+
//              v                                                     | the life has ended, and
//   start -> connect -> prepare -> try paths -> join -> ask <-> work-+ another may go better
//                                   |     ^              |        |
//                                   back off             | done, told to stop, refused
//                                                        v
//                                                say good-bye -> finish
//
// A life is what the coordinator knows by one incarnation. A connection that breaks does not end
// it: after `connect` the same life goes on, and owes what it owed (the report of its last round,
// the round at hand). With another incarnation, or servers that began anew, both are void.
//
// Told to stop, the worker finishes the round at hand, asks whether it was granted another one
// meanwhile, and leaves. Of a window of local steps it makes those that fit into the time that it
// has left (worker/trainer/window_end.h); a step takes its time. Servers that keep it waiting for
// leave_timeout, or until its machine goes, are left without. Where contributions are deferred
// (local_sgd with fragments or overlap), the steps of the last round are contributed to the one
// after it: it asks for that, too. What is not handed in is told by the status that the worker ends
// with.
//
// If no server answers for the time of `connect`, the worker ends with Unavailable: its job may be
// over, or its address wrong.
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

// A life of this worker under one life of the servers: what a contribution and its report belong
// to.
struct LifeId {
  uint64_t server_incarnation = 0;
  Incarnation incarnation;
  friend bool operator==(const LifeId&, const LifeId&) = default;
};

// Why a worker is to stop, and how long it has.
struct StopRequest {
  // Local steps that fit into it are still made; zero: none after the one at hand.
  absl::Duration grace = absl::ZeroDuration();
  // Its machine goes then, so that no patience with servers lasts longer, and none is of use
  // before.
  bool machine_goes = false;
};

// Not thread-safe. Times are of one clock and never go back.
class Lifecycle {
 public:
  struct Config {
    absl::Duration first_backoff = absl::Milliseconds(100);
    absl::Duration longest_backoff = absl::Seconds(1);
    absl::Duration leave_timeout = absl::Seconds(30);
    ConnectPatience::Config connect = {};
  };

  // Tasks. The event that tells the outcome is named beside each. No other task is given before.
  struct Connect {};  // ends what is left of the last connection, then registers: OnRegistered()
  struct Prepare {};  // model and data of the job; heartbeats begin: OnPrepared()
  // Whether every server can be reached for bulk: OnPathsTried(). Aborted means that a server does
  // not know this life, which is tried again: its address leads to another job.
  struct TryPaths {};
  struct Join {};  // OnJoined()
  struct AskForGrant {
    std::optional<RoundReport> report;
    bool leaving = false;  // no new work is wanted
  };                       // OnGrant()
  struct CarryOut {
    Grant grant;
  };  // evaluate, or pull, compute and push: OnCarriedOut()
  struct SayGoodbye {
    std::string reason;
    std::optional<RoundReport> report;
  };  // OnLeft()
  // The last one: what the process ends with.
  struct Finish {
    absl::Status status;
  };

  // At once. Calls and transfers end soon; the event of the task comes all the same.
  struct CancelCalls {};      // to the coordinator, of the task at hand
  struct CancelTransfers {};  // all of this connection, later ones too
  struct Tell {
    LogLevel level = LogLevel::kInfo;
    std::string text;
  };
  struct TellWait {
    std::string reason;  // why the cluster does not go on; empty: it does
  };

  using Task =
      std::variant<Connect, Prepare, TryPaths, Join, AskForGrant, CarryOut, SayGoodbye, Finish>;
  using Effect = std::variant<Task, CancelCalls, CancelTransfers, Tell, TellWait>;
  using Effects = std::vector<Effect>;

  explicit Lifecycle(const Config& config) : config_(config), patience_(config.connect) {}

  // Called once, first.
  Effects Start(absl::Time now);

  // What tasks have brought.
  Effects OnRegistered(absl::Time now, const absl::StatusOr<LifeId>& life);
  Effects OnPrepared(absl::Time now, const absl::Status& status);
  Effects OnPathsTried(absl::Time now, const absl::Status& status);
  Effects OnJoined(absl::Time now, const absl::Status& status);
  Effects OnGrant(absl::Time now, const absl::StatusOr<Grant>& grant);
  // `leaves_steps`: what was computed on the grant is contributed to a round after it.
  Effects OnCarriedOut(absl::Time now, const absl::StatusOr<RoundReport>& report,
                       bool leaves_steps = false);
  Effects OnLeft(absl::Time now, const absl::Status& status);

  // What happens beside them. Of several requests to stop the shortest time counts.
  Effects OnStopRequested(absl::Time now, const StopRequest& request = {});
  // A heartbeat was answered Aborted: the coordinator has ended this life.
  Effects OnLifeLost(absl::Time now, const absl::Status& status);
  // A heartbeat was answered: why the cluster does not go on, or nothing.
  Effects OnHeartbeat(const std::string& waiting_for);
  void OnHeartbeatUnanswered(const absl::Status& status) { unanswered_ = status; }
  // The round at hand computes ("compute"), or waits for servers ("pull", "push").
  void OnActivity(absl::Time now, absl::string_view activity);
  // next_wake() has come. Too early or too often does no harm.
  Effects OnTick(absl::Time now);
  absl::Time next_wake() const;

  // The report of the round at hand, with the time that was waited for its grant as well.
  RoundReport WithWait(RoundReport report) const;
  // What keeps the worker from computing, for people: what it waits for, or why it is not
  // connected. Empty: it computes.
  std::string Standing() const;
  static constexpr absl::string_view kPrepares = "prepares model and data";
  static constexpr absl::string_view kComputes = "computes";
  static constexpr absl::string_view kEndsLife = "ends its life";
  // Returns what the worker does by itself, which no other process can end. The last kind: the life
  // is over, so that the calls and transfers that the worker waited for are cancelled. Empty: the
  // worker waits for servers, or for the time to try again.
  absl::string_view OwnWork() const;
  // What a heartbeat says that the worker does.
  std::string activity() const;
  bool is_stopping() const { return is_stopping_; }
  // Told to stop: for local steps and for handing them in. Not below zero.
  absl::Duration time_left(absl::Time now) const;
  // Returns true if no server will take what this life still computes.
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
  // The life has ended, or was not begun. OK: the job is done.
  Effects EndLife(absl::Time now, const absl::Status& status);
  Effects Leave(absl::Time now, std::string reason);
  // Says what the servers have not taken yet, and until when a worker that stops waits for them.
  Effect TellPatience(absl::string_view owed, absl::Time until) const;
  Effects BackOff(absl::Time now, const absl::Status& reason);
  // No server has answered for the time of config_.connect.
  Effects GiveUpOnServers(const absl::Status& reason);
  // Whether another life may go better; counts the signs of life of who holds this worker's name.
  bool MayTryAgain(absl::Time now, const absl::Status& status, Effects& effects);
  Effects Conclude(const absl::Status& status);
  // What Finish says of a worker that was told to stop; `left`: what its good-bye has brought.
  absl::Status OutcomeOfStop(const absl::Status& left) const;
  // What was computed, or is at hand, and no server has: "round 5 is not handed in"; empty:
  // nothing.
  std::string WhatIsLost() const;
  absl::Status KeptWaiting() const;
  // A task that servers take part in has ended; if the life was lost meanwhile, that is why.
  absl::Status Cause(const absl::Status& status) const { return lost_.ok() ? status : lost_; }
  // Whether a life has been begun, and what it does is not over.
  bool IsLiving() const;
  // Whether servers may keep the worker waiting now.
  bool waits_for_servers() const;
  absl::Duration PauseAfter(int failures) const;

  const Config config_;
  State state_ = State::kNotStarted;
  absl::Time since_;         // when the worker began what it does, or was told to stop during it
  absl::Status unanswered_;  // why the last heartbeat was not; OK: it was
  std::string round_activity_;
  std::string wait_reason_;  // kAsking: that the last answer had; empty: it brought work

  std::optional<LifeId> life_;                // the last one, as long as it may go on
  absl::Status lost_;                         // why it has ended, while it is at hand
  std::optional<RoundReport> unsent_report_;  // until the coordinator has it
  std::optional<Round> round_at_hand_;        // granted, and not handed over
  // Where contributions are deferred: on whose grant the steps were computed that a later round is
  // to take.
  std::optional<Round> steps_in_hand_;
  absl::Time asked_at_;
  absl::Duration waited_;  // for grants, since the last report
  bool asks_leaving_ = false;

  bool is_stopping_ = false;
  absl::Time gone_by_ = absl::InfiniteFuture();  // told to stop: computing ends in time for that
  absl::Time machine_ends_ = absl::InfiniteFuture();  // as far as it was told
  bool has_own_patience_ = false;                     // told to stop by others than the machine
  bool gave_up_ = false;  // on servers that kept a worker waiting that was told to stop
  absl::Status end_;      // kLeaving: what the last life has ended with
  // Told to stop: why the servers have nothing more for this worker, once they have said so.
  std::optional<std::string> dismissal_;
  bool is_refused_ = false;

  bool retries_paths_ = false;  // kBackingOff: within a life
  absl::Time wake_at_;          // kBackingOff
  int path_failures_ = 0;       // in a row
  int failed_lives_ = 0;        // in a row
  bool is_join_told_ = false;   // why it may not join, since it last did
  bool did_work_ = false;       // in this life
  // While another process holds this worker's name: the end of its lease when that was last found
  // renewed and what its server had counted then, its longest rest, and how often it was found
  // renewed.
  std::optional<absl::Time> held_until_;
  std::optional<int64_t> server_count_;
  absl::Duration longest_rest_;
  int times_found_renewed_ = 0;
  UnknownCalls unknown_calls_;
  ConnectPatience patience_;
};

}  // namespace lodestar::life
