// SPDX-License-Identifier: Apache-2.0

#include "worker/life/lifecycle.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/check.h"
#include "common/runtime/status_hints.h"

namespace lodestar::life {
namespace {

// If a lease is renewed this many times, its holder counts as alive. Late messages of a dead
// process renew the lease fewer times.
constexpr int kMaxRenewals = 3;

// Time that is reserved before the machine stops, so that the worker can log what was not handed
// in.
constexpr absl::Duration kLastWords = absl::Seconds(1);

// Returns true if the result of a registration comes from a server.
bool IsOfServer(const absl::Status& status) {
  return IsAnswered(status) || !(absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status));
}

absl::Status ToldToStop() { return absl::CancelledError("told to stop"); }

}  // namespace

Lifecycle::Effects Lifecycle::Go(State state, absl::Time now, Task task) {
  state_ = state;
  since_ = now;
  return {std::move(task)};
}

Lifecycle::Effects Lifecycle::Start(absl::Time now) {
  LODESTAR_CHECK(state_ == State::kNotStarted);
  if (is_stopping_) return EndLife(now, ToldToStop());
  return Go(State::kConnecting, now, Connect{});
}

Lifecycle::Effects Lifecycle::OnRegistered(absl::Time now, const absl::StatusOr<LifeId>& life) {
  LODESTAR_CHECK(state_ == State::kConnecting);
  lost_ = absl::OkStatus();
  if (IsJobOver(life.status())) {
    // No life was begun, so there is nothing to leave.
    Effects effects = {Tell{logging::LogLevel::kInfo,
                            absl::StrCat("done: ", std::string(life.status().message()))}};
    for (Effect& effect : Conclude(absl::OkStatus())) effects.push_back(std::move(effect));
    return effects;
  }
  if (IsOfServer(life.status())) {
    patience_.OnAnswered();
  } else if (!is_stopping_) {
    patience_.OnUnanswered(since_);
    if (patience_.IsOver(now)) return GiveUpOnServers(life.status());
  }
  // Aborted means that the servers have gone back to an older state. They may give the number of
  // the old life to a new life, so the old life must be forgotten.
  if (absl::IsAborted(life.status())) life_.reset();
  if (!life.ok()) return EndLife(now, life.status());
  held_until_.reset();
  if (std::exchange(life_, *life) != *life) {
    unsent_report_.reset();
    // A worker that is not stopping forgets the open work of the old life. A worker that is
    // stopping remembers it, to report it as lost.
    if (!is_stopping_) {
      round_at_hand_.reset();
      steps_in_hand_.reset();
    }
  }
  if (is_stopping_) return EndLife(now, ToldToStop());
  return Go(State::kPreparing, now, Prepare{});
}

Lifecycle::Effects Lifecycle::OnPrepared(absl::Time now, const absl::Status& status) {
  LODESTAR_CHECK(state_ == State::kPreparing);
  const bool has_stopped = is_stopping_ && absl::IsCancelled(status);
  // An error of this machine is final, even if the life has ended meanwhile.
  if (!status.ok() && !has_stopped) return EndLife(now, AsFinal(status));
  if (is_stopping_) return EndLife(now, ToldToStop());
  if (!lost_.ok()) return EndLife(now, lost_);
  path_failures_ = 0;
  return Go(State::kTryingPaths, now, TryPaths{});
}

Lifecycle::Effects Lifecycle::OnPathsTried(absl::Time now, const absl::Status& status) {
  LODESTAR_CHECK(state_ == State::kTryingPaths);
  if (is_stopping_) return EndLife(now, ToldToStop());
  if (!lost_.ok()) return EndLife(now, lost_);
  if (status.ok()) return Go(State::kJoining, now, Join{});
  // The coordinator has just confirmed this life. So Aborted means that a server's address belongs
  // to another job. If the life had ended, OnLifeLost() would have set lost_.
  const bool is_of_another_job = absl::IsAborted(status);
  if (!is_of_another_job && RemedyFor(status) != Remedy::kRepeat) return EndLife(now, status);
  Effects effects;
  if (path_failures_++ % 16 == 0) {
    effects.push_back(
        Tell{logging::LogLevel::kWarn,
             absl::StrCat(
                 "cannot take part in the job yet: ", status.message(),
                 is_of_another_job
                     ? ". The coordinator knows this worker, so the server at that address belongs "
                       "to another job or to another start of this job. Start the server of this "
                       "job with --advertise=HOST:PORT, an address where workers reach it"
                     : "",
                 "; trying again")});
  }
  state_ = State::kBackingOff;
  since_ = now;
  retries_paths_ = true;
  wake_at_ = now + PauseAfter(path_failures_);
  return effects;
}

Lifecycle::Effects Lifecycle::OnJoined(absl::Time now, const absl::Status& status) {
  LODESTAR_CHECK(state_ == State::kJoining);
  if (!lost_.ok() || !status.ok()) {
    Effects effects;
    // BackOff() does not log this attempt, so the log does not say yet why the worker cannot join.
    if (lost_.ok() && !is_stopping_ && failed_lives_ > 0 && RemedyFor(status) == Remedy::kRepeat &&
        !std::exchange(is_join_told_, true)) {
      effects.push_back(Tell{
          logging::LogLevel::kWarn,
          absl::StrCat("cannot take part in the job yet: ", status.message(), "; trying again")});
    }
    for (Effect& effect : EndLife(now, is_stopping_ ? ToldToStop() : Cause(status))) {
      effects.push_back(std::move(effect));
    }
    return effects;
  }
  is_join_told_ = false;
  // Asks even if the worker is stopping: it has joined, so the coordinator may already have granted
  // it a round.
  return Ask(now);
}

Lifecycle::Effects Lifecycle::Ask(absl::Time now) {
  asked_at_ = now;
  asks_leaving_ = is_stopping_;
  return Go(State::kAsking, now, AskForGrant{unsent_report_, asks_leaving_});
}

Lifecycle::Effects Lifecycle::OnGrant(absl::Time now,
                                      const absl::StatusOr<messages::Grant>& grant) {
  LODESTAR_CHECK(state_ == State::kAsking);
  waited_ += now - asked_at_;
  if (!grant.ok()) {
    // OnStopRequested() has cancelled the request. The worker asks again with `leaving`, because
    // the cancelled request may have been granted.
    if (is_stopping_ && !asks_leaving_ && lost_.ok() && !gave_up_) return Ask(now);
    return EndLife(now, Cause(grant.status()));
  }
  // The coordinator has got the report with the request.
  unsent_report_.reset();
  // If the same round is granted again, round_at_hand_ is set again below.
  round_at_hand_.reset();
  switch (grant->kind) {
    case messages::Grant::Kind::kDone: {
      if (grant->has_failed) {
        return EndLife(now, absl::FailedPreconditionError(
                                absl::StrCat("the job has failed: ", grant->reason)));
      }
      if (is_stopping_) {
        dismissal_ = grant->reason;
        return EndLife(now, ToldToStop());
      }
      const std::string lost = WhatIsLost();
      Effects effects = {
          Tell{lost.empty() ? logging::LogLevel::kInfo : logging::LogLevel::kWarn,
               absl::StrCat("done: ", grant->reason, lost.empty() ? "" : "; ", lost)}};
      for (Effect& effect : EndLife(now, absl::OkStatus())) effects.push_back(std::move(effect));
      return effects;
    }
    case messages::Grant::Kind::kWait: {
      wait_reason_ = grant->reason;
      Effects effects = {TellWait{grant->reason}};
      const absl::Time since = since_;
      for (Effect& effect : Ask(now)) effects.push_back(std::move(effect));
      // The wait goes on after kWait, so since_ keeps the time at which it began.
      since_ = since;
      return effects;
    }
    case messages::Grant::Kind::kTrain:
    case messages::Grant::Kind::kEvaluate:
      break;
  }
  round_at_hand_ = grant->round;
  round_activity_ = "compute";
  wait_reason_.clear();
  Effects effects = {TellWait{}};
  for (Effect& effect : Go(State::kWorking, now, CarryOut{*grant})) {
    effects.push_back(std::move(effect));
  }
  return effects;
}

Lifecycle::Effects Lifecycle::OnCarriedOut(absl::Time now,
                                           const absl::StatusOr<messages::RoundReport>& report,
                                           bool leaves_steps) {
  LODESTAR_CHECK(state_ == State::kWorking);
  if (!report.ok()) {
    // The program has cancelled the round before its first step. So no work is lost.
    if (absl::IsCancelled(report.status()) && is_stopping_ && !gave_up_ && lost_.ok()) {
      round_at_hand_.reset();
    }
    // An error of this machine is reported unchanged. Any other error is replaced by the reason why
    // the life has ended, if it has ended.
    const bool is_final = RemedyFor(report.status()) == Remedy::kGiveUp;
    return EndLife(now, is_final ? report.status() : Cause(report.status()));
  }
  round_at_hand_.reset();
  steps_in_hand_ = leaves_steps ? std::optional(report->round) : std::nullopt;
  unsent_report_ = WithWait(*report);
  waited_ = absl::ZeroDuration();
  did_work_ = true;
  return lost_.ok() ? Ask(now) : EndLife(now, lost_);
}

Lifecycle::Effects Lifecycle::EndLife(absl::Time now, const absl::Status& status) {
  end_ = status;
  if (gave_up_ && round_at_hand_.has_value()) return Conclude(KeptWaiting());
  is_refused_ = !status.ok() && RemedyFor(status) == Remedy::kGiveUp;
  if (status.ok()) return Leave(now, "job is done");
  if (is_stopping_ && !is_refused_) return Leave(now, "told to stop");
  Effects effects;
  if (is_refused_ || !MayTryAgain(now, status, effects)) {
    is_refused_ = true;
    // Leave() also sends the reason to the server's log, and the other members need not wait until
    // this worker's lease ends.
    return Leave(now, std::string(status.message()));
  }
  for (Effect& effect : BackOff(now, status)) effects.push_back(std::move(effect));
  return effects;
}

Lifecycle::Effects Lifecycle::Leave(absl::Time now, std::string reason) {
  Effects effects;
  if (is_stopping_ && unsent_report_.has_value()) {
    effects.push_back(TellPatience(
        absl::StrCat("the coordinator has not confirmed this worker's report of round ",
                     unsent_report_->round.value()),
        std::min(now + config_.leave_timeout, machine_ends_)));
  }
  for (Effect& effect : Go(State::kLeaving, now, SayGoodbye{std::move(reason), unsent_report_})) {
    effects.push_back(std::move(effect));
  }
  return effects;
}

Lifecycle::Effect Lifecycle::TellPatience(absl::string_view owed, absl::Time until) const {
  return Tell{logging::LogLevel::kWarn,
              absl::StrCat("stopping, but ", owed, "; this program waits for the servers until ",
                           absl::FormatTime("%H:%M:%S", until, absl::UTCTimeZone()),
                           " UTC at the latest (--leave_timeout is ",
                           absl::FormatDuration(config_.leave_timeout), ")")};
}

Lifecycle::Effects Lifecycle::OnLeft(absl::Time /*now*/, const absl::Status& status) {
  LODESTAR_CHECK(state_ == State::kLeaving);
  if (is_refused_) return Conclude(end_);
  Effects effects;
  if (!status.ok()) {
    effects.push_back(Tell{
        logging::LogLevel::kWarn,
        absl::StrCat("could not tell the servers that this worker leaves: ", status.message())});
  }
  const absl::Status outcome = OutcomeOfStop(status);
  if (outcome.ok() && !end_.ok() && status.ok() && did_work_) {
    effects.push_back(
        Tell{logging::LogLevel::kInfo, "stopped; everything that was computed is delivered"});
  }
  for (Effect& effect : Conclude(outcome)) effects.push_back(std::move(effect));
  return effects;
}

absl::Status Lifecycle::OutcomeOfStop(const absl::Status& left) const {
  if (end_.ok()) return absl::OkStatus();
  if (const std::string lost = WhatIsLost(); !lost.empty()) {
    if (gave_up_) return KeptWaiting();
    if (!lost_.ok() || absl::IsAborted(end_)) {
      return absl::DeadlineExceededError(absl::StrCat(
          "stopped on request, but the servers have ended this worker's incarnation: ", lost, " (",
          Cause(end_).message(), ")"));
    }
    if (dismissal_.has_value()) {
      return absl::DeadlineExceededError(
          absl::StrCat("stopped on request, but the servers have no further round: ", lost, " (",
                       *dismissal_, ")"));
    }
    if (absl::IsCancelled(end_)) {
      return absl::DeadlineExceededError(absl::StrCat(
          "stopped on request while the worker was connecting to the servers again: ", lost));
    }
    return absl::DeadlineExceededError(
        absl::StrCat("stopped on request, but the connection to the servers failed: ", lost, " (",
                     end_.message(), ")"));
  }
  if (unsent_report_.has_value() && !left.ok()) {
    return absl::DeadlineExceededError(
        absl::StrCat("stopped on request, and the servers have the contribution to round ",
                     unsent_report_->round.value(),
                     ", but the coordinator has not confirmed this worker's report of that round (",
                     left.message(), ")"));
  }
  return absl::OkStatus();
}

std::string Lifecycle::WhatIsLost() const {
  const std::string steps =
      steps_in_hand_.has_value()
          ? absl::StrCat("the steps that were computed in round ", steps_in_hand_->value())
          : "";
  if (round_at_hand_.has_value()) {
    return absl::StrCat("the contribution to round ", round_at_hand_->value(),
                        steps.empty() ? " is" : absl::StrCat(" and ", steps, " are"),
                        " not delivered");
  }
  return steps.empty() ? "" : absl::StrCat(steps, " are not delivered");
}

absl::Status Lifecycle::KeptWaiting() const {
  if (machine_ends_ < since_ + config_.leave_timeout || !has_own_patience_) {
    return absl::DeadlineExceededError(absl::StrCat(
        "stopped on request, but the servers did not answer before this machine is taken away: ",
        WhatIsLost()));
  }
  return absl::DeadlineExceededError(absl::StrCat(
      "stopped on request, but the servers did not answer within ",
      absl::FormatDuration(config_.leave_timeout), " (--leave_timeout): ", WhatIsLost(),
      ". For more time, give a larger --leave_timeout"));
}

Lifecycle::Effects Lifecycle::Conclude(const absl::Status& status) {
  state_ = State::kFinished;
  return {Task(Finish{status})};
}

bool Lifecycle::MayTryAgain(absl::Time now, const absl::Status& status, Effects& effects) {
  const Remedy remedy = RemedyFor(status);
  if (unknown_calls_.IsFinal(status, did_work_)) return false;
  if (remedy != Remedy::kAwaitLease) {
    held_until_.reset();
    return remedy != Remedy::kGiveUp;
  }
  // The holder of the name is usually an earlier process of this worker. Its last messages may
  // still arrive and renew the lease, but not many times. A live holder renews its lease again and
  // again.
  const absl::Duration rest = RetryAfterOf(status).value_or(config_.longest_backoff);
  const absl::Time held_until = now + rest;
  const std::optional<int64_t> server_count = TimesRenewedOf(status);
  if (!held_until_.has_value()) {
    held_until_ = held_until;
    server_count_ = server_count;
    longest_rest_ = rest;
    times_found_renewed_ = 0;
    effects.push_back(Tell{logging::LogLevel::kWarn,
                           absl::StrCat(status.message(), "; this program waits at most ",
                                        absl::FormatDuration(absl::Ceil(rest, absl::Seconds(1))),
                                        " for the end of that worker's lease")});
    return true;
  }
  longest_rest_ = std::max(longest_rest_, rest);
  // If the lease ends only a little later than expected, it was not renewed. The answer was slower,
  // or the server ends the lease late.
  if (rest > absl::ZeroDuration() && held_until - *held_until_ > longest_rest_ / 4) {
    held_until_ = held_until;
    // A restarted server gives whole leases again and counts renewals from 0. So a lower or equal
    // count does not show that the holder is alive.
    if (!server_count.has_value() || server_count > server_count_) ++times_found_renewed_;
    server_count_ = server_count;
  }
  // After kMaxRenewals renewals the holder counts as alive, and the worker gives up. But a live
  // holder renews its lease before half of it is over. So if less than half is left, the holder has
  // ended.
  return times_found_renewed_ < kMaxRenewals || rest < longest_rest_ / 2;
}

absl::Duration Lifecycle::PauseAfter(int failures) const {
  absl::Duration pause = config_.first_backoff;
  for (int i = 1; i < failures && pause < config_.longest_backoff; ++i) pause *= 2;
  return std::min(pause, config_.longest_backoff);
}

Lifecycle::Effects Lifecycle::BackOff(absl::Time now, const absl::Status& reason) {
  failed_lives_ = did_work_ ? 1 : failed_lives_ + 1;
  did_work_ = false;
  retries_paths_ = false;
  path_failures_ = 0;
  state_ = State::kBackingOff;
  since_ = now;
  wake_at_ = now + PauseAfter(failed_lives_);
  // Logs once per outage, and again from time to time. It is normal that servers cannot be reached
  // yet, because a job may be started in any order.
  const bool is_due = failed_lives_ == 1 || failed_lives_ % 16 == 0;
  if (!is_due || held_until_.has_value()) return {};
  return {Tell{logging::LogLevel::kWarn,
               absl::StrCat("not connected (", reason.message(), "); ",
                            IsOfServer(reason) ? "trying again" : patience_.WhatIsLeft(now))}};
}

Lifecycle::Effects Lifecycle::GiveUpOnServers(const absl::Status& reason) {
  const std::string lost = WhatIsLost();
  return Conclude(patience_.Outcome(lost.empty() ? std::string(reason.message())
                                                 : absl::StrCat(reason.message(), "; ", lost)));
}

Lifecycle::Effects Lifecycle::OnStopRequested(absl::Time now, const StopRequest& request) {
  gone_by_ = std::min(gone_by_, now + request.grace);
  if (request.machine_goes) {
    machine_ends_ = std::min(machine_ends_, now + request.grace);
  } else if (!std::exchange(has_own_patience_, true)) {
    since_ = now;
  }
  if (std::exchange(is_stopping_, true)) return {};
  since_ = now;
  Effects effects;
  // Logs how long the worker waits for servers. This is done in two states:
  // - kWorking;
  // - kAsking, if the servers do not answer. If they do, the grant comes soon.
  // In other states the calls are cancelled at once.
  if (waits_for_servers() &&
      (state_ == State::kWorking || (state_ == State::kAsking && !unanswered_.ok()))) {
    const std::string owed = round_at_hand_.has_value() ? absl::StrCat("the contribution to round ",
                                                                       round_at_hand_->value(),
                                                                       " is still being delivered")
                                                        : "the servers do not answer";
    effects.push_back(TellPatience(owed, next_wake()));
  }
  switch (state_) {
    case State::kBackingOff:
      return EndLife(now, ToldToStop());
    case State::kConnecting:
    case State::kJoining:
    case State::kAsking:
      effects.emplace_back(CancelCalls{});
      return effects;
    case State::kTryingPaths:
      return {CancelTransfers{}};
    case State::kNotStarted:
    // The workload checks is_stopping() in Prepare.
    case State::kPreparing:
    // The worker finishes the present step first.
    case State::kWorking:
    case State::kLeaving:
    case State::kFinished:
      return effects;
  }
  return effects;
}

absl::Duration Lifecycle::time_left(absl::Time now) const {
  return std::max(absl::ZeroDuration(), gone_by_ - now);
}

bool Lifecycle::IsLiving() const {
  switch (state_) {
    case State::kPreparing:
    case State::kTryingPaths:
    case State::kJoining:
    case State::kAsking:
    case State::kWorking:
      return true;
    default:
      return false;
  }
}

Lifecycle::Effects Lifecycle::OnLifeLost(absl::Time now, const absl::Status& status) {
  const bool rests = state_ == State::kBackingOff && retries_paths_;
  if (!lost_.ok() || !(IsLiving() || rests)) return {};
  lost_ = status;
  Effects effects = {
      Tell{logging::LogLevel::kWarn,
           absl::StrCat("the servers have ended this worker's incarnation: ", status.message())}};
  if (!rests) {
    effects.emplace_back(CancelCalls{});
    effects.emplace_back(CancelTransfers{});
    return effects;
  }
  for (Effect& effect : EndLife(now, status)) effects.push_back(std::move(effect));
  return effects;
}

Lifecycle::Effects Lifecycle::OnHeartbeat(const std::string& waiting_for) {
  unanswered_ = absl::OkStatus();
  // In kAsking, OnGrant() tells why the cluster waits. While this worker computes, it does not
  // wait, even if other workers wait for it.
  if (state_ != State::kWorking || round_activity_ == "compute") return {};
  return {TellWait{waiting_for}};
}

void Lifecycle::OnActivity(absl::Time now, absl::string_view activity) {
  round_activity_ = std::string(activity);
  since_ = now;
}

bool Lifecycle::waits_for_servers() const {
  switch (state_) {
    case State::kConnecting:
    case State::kTryingPaths:
    case State::kJoining:
    case State::kAsking:
      return true;
    case State::kWorking:
      return round_activity_ != "compute";
    // In other states the worker does not wait for servers. SayGoodbye has its own time limit.
    default:
      return false;
  }
}

absl::Time Lifecycle::next_wake() const {
  absl::Time next = absl::InfiniteFuture();
  if (state_ == State::kBackingOff) next = wake_at_;
  if (is_stopping_ && !gave_up_ && waits_for_servers()) {
    if (has_own_patience_) next = std::min(next, since_ + config_.leave_timeout);
    // The worker stops waiting kLastWords before the machine stops. If that time is over and the
    // machine still exists, the worker waits for at most kLastWords.
    next = std::min(next, std::max(machine_ends_, since_ + 2 * kLastWords) - kLastWords);
  }
  return next;
}

Lifecycle::Effects Lifecycle::OnTick(absl::Time now) {
  if (now < next_wake()) return {};
  if (state_ == State::kBackingOff) {
    if (!retries_paths_) return Go(State::kConnecting, now, Connect{});
    return Go(State::kTryingPaths, now, TryPaths{});
  }
  gave_up_ = true;
  return {CancelCalls{}, CancelTransfers{}};
}

messages::RoundReport Lifecycle::WithWait(messages::RoundReport report) const {
  report.wait += std::max(absl::ZeroDuration(), waited_ - report.computed_ahead);
  return report;
}

std::string Lifecycle::Standing() const {
  switch (state_) {
    case State::kWorking:
      if (round_activity_ == "compute") return "";
      if (!unanswered_.ok()) return absl::StrCat("not connected: ", unanswered_.message());
      return round_activity_ == "pull" ? "pulls weights" : "sends its contribution";
    case State::kAsking:
      return wait_reason_.empty() ? "asks for work" : wait_reason_;
    case State::kNotStarted:
    case State::kConnecting:
    case State::kBackingOff:
      if (retries_paths_) return "has no path to every server";
      return end_.ok() ? "connects" : absl::StrCat("not connected: ", end_.message());
    case State::kPreparing:
    case State::kTryingPaths:
    case State::kJoining:
      return "joins";
    case State::kLeaving:
    case State::kFinished:
      return "leaves";
  }
  return "";
}

absl::string_view Lifecycle::OwnWork() const {
  if (state_ == State::kPreparing) return kPrepares;
  if (state_ == State::kWorking && round_activity_ == "compute") return kComputes;
  return IsLiving() && !lost_.ok() ? kEndsLife : "";
}

std::string Lifecycle::activity() const {
  switch (state_) {
    case State::kAsking:
      return "wait";
    case State::kWorking:
      return round_activity_;
    case State::kTryingPaths:
    case State::kBackingOff:
      return path_failures_ > 0 ? "no path" : "start";
    default:
      return "start";
  }
}

}  // namespace lodestar::life
