// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/ending/job_ending.h"

#include <algorithm>
#include <utility>

#include "common/runtime/check.h"

namespace lodestar::ending {

void JobEnding::Resume(Memory memory, absl::Time now) {
  stop_reason_ = std::move(memory.stop_reason);
  stop_requested_at_ = memory.stop_requested_at;
  drop_missing_at_ = std::max(now, StopDeadline());
}

absl::Time JobEnding::StopDeadline() const {
  return stop_requested_at_.has_value() ? *stop_requested_at_ + config_.stop_timeout
                                        : absl::InfiniteFuture();
}

void JobEnding::Pause(absl::string_view reason, absl::Time now) {
  pause_ = {std::string(reason), pause_.has_value() ? pause_->since : now};
}

void JobEnding::RequestStop(absl::string_view reason, absl::Time now) {
  LODESTAR_CHECK(!is_stopping()) << reason;
  stop_reason_ = std::string(reason);
  stop_requested_at_ = now;
  pause_.reset();
  drop_missing_at_ = std::min(drop_missing_at_, now + config_.stop_timeout);
}

void JobEnding::FailDiverged(const absl::Status& failure, absl::string_view stop_reason) {
  failure_ = failure;
  stop_reason_ = std::string(stop_reason);
}

bool JobEnding::FailOnceSaved(const absl::Status& failure) {
  if (!failure_once_saved_.ok()) return false;
  failure_once_saved_ = failure;
  return true;
}

bool JobEnding::AwaitSave(absl::string_view asker, absl::Duration patience, absl::Time now) {
  if (!askers_.insert(std::string(asker)).second) return false;
  hold_reason_ = std::string(asker);
  // The rest of the time is for workers and servers.
  const absl::Time until = now + patience - WriteTimeOf(patience);
  drop_missing_at_ = std::min(drop_missing_at_, until);
  away_until_ = std::max(away_until_, until);
  return true;
}

bool JobEnding::ForgetAsker(absl::string_view asker) {
  if (askers_.erase(std::string(asker)) == 0 || !askers_.empty()) return false;
  hold_reason_.clear();
  away_until_ = absl::InfinitePast();
  drop_missing_at_ = StopDeadline();
  return true;
}

bool JobEnding::IsHeldUp(bool is_saving, bool is_shard_away, absl::Time back_at,
                         absl::Time now) const {
  return now >= drop_missing_at_ && (is_saving || is_stopping()) && !is_shard_away &&
         now - back_at >= kHandInTime;
}

void JobEnding::OnDropped(const std::vector<MissedReport>& missed) {
  drop_missing_at_ = absl::InfiniteFuture();
  not_waited_for_.insert(not_waited_for_.end(), missed.begin(), missed.end());
}

void JobEnding::OnOver(absl::Time now) { over_since_ = std::min(over_since_, now); }

absl::Time JobEnding::LeavesBy(std::optional<absl::Time> report_due_at) const {
  const absl::Time by =
      std::max(over_since_ + kFarewellTime, report_due_at.value_or(absl::InfinitePast()));
  if (!stop_requested_at_.has_value()) return by;
  // After a stop, the wait for the worker is shorter. The worker hears of the end when it next asks
  // for work.
  return std::min(by, std::max(StopDeadline(), over_since_ + config_.lease));
}

void JobEnding::Exit(std::set<int> untold, absl::Time now) {
  should_exit_ = true;
  exit_untold_ = std::move(untold);
  exit_by_ = now + kExitTime;
}

void JobEnding::Restart() {
  failure_once_saved_ = absl::OkStatus();
  hold_reason_.clear();
  askers_.clear();
  drop_missing_at_ = StopDeadline();
  not_waited_for_.clear();
  over_since_ = absl::InfiniteFuture();
}

}  // namespace lodestar::ending
