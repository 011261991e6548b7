// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/checkpoints/checkpoint_tracker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/runtime/check.h"

namespace lodestar::checkpoints {

absl::string_view CheckpointTracker::active_directory() const {
  return active_.has_value() ? absl::string_view(active_->record.directory) : "";
}

CheckpointTracker::Memory CheckpointTracker::memory() const {
  Memory memory;
  memory.next_ticket = next_ticket_;
  memory.active_directory = std::string(active_directory());
  memory.last = last_;
  if (!last_.has_value()) return memory;
  memory.last_ledger = last_ledger_;
  memory.last_orders = last_orders_;
  memory.last_at = last_at_;
  memory.last_write_time = last_write_time_;
  return memory;
}

void CheckpointTracker::Resume(const Memory& memory) {
  next_ticket_ = memory.next_ticket;
  given_up_ = memory.active_directory;
  last_ = memory.last;
  last_ledger_ = memory.last_ledger;
  last_orders_ = memory.last_orders;
  last_at_ = memory.last_at;
  last_write_time_ = memory.last_write_time;
}

uint64_t CheckpointTracker::Request(absl::Time now) {
  if (!is_requested()) requested_at_ = now;
  return next_ticket_;
}

std::optional<absl::Time> CheckpointTracker::requested_at() const {
  if (active_.has_value() && active_->requested_at.has_value()) return active_->requested_at;
  return requested_at_;
}

std::string CheckpointTracker::Begin(absl::string_view folder, Round round,
                                     const CoordinatorState& state, absl::Time now) {
  LODESTAR_CHECK(!is_active()) << "checkpoint of round " << round;
  Active active;
  active.ticket = next_ticket_++;
  active.record.final_directory = absl::StrFormat("%s/round-%08d", folder, round.value());
  // No other try of any process uses this name. So a shard that writes too late cannot write into
  // the folder of another checkpoint.
  active.record.directory = absl::StrFormat("%s.%d-%d.tmp", active.record.final_directory,
                                            state.server_incarnation, active.ticket);
  active.record.round = round;
  active.record.state = state;
  active.record.manifest_parts.resize(num_shards_);
  active.saved.resize(num_shards_);
  active.begun_at = now;
  active.requested_at = std::exchange(requested_at_, std::nullopt);
  active_ = std::move(active);
  return active_->record.directory;
}

void CheckpointTracker::ServeWithLast() {
  LODESTAR_CHECK(last_.has_value()) << "no checkpoint on disk";
  Record(next_ticket_++, *last_);
  requested_at_.reset();
}

bool CheckpointTracker::is_publishing() const {
  return is_active() && std::count(active_->saved.begin(), active_->saved.end(), false) == 0;
}

std::optional<absl::StatusOr<CheckpointRecord>> CheckpointTracker::OnSaved(
    int shard, absl::string_view directory, const absl::StatusOr<std::string>& manifest_part) {
  if (directory != active_directory() || !is_active()) return std::nullopt;
  if (!manifest_part.ok()) {
    const absl::Status failure(manifest_part.status().code(),
                               absl::StrCat("checkpoint ", directory, ": shard ", shard, ": ",
                                            manifest_part.status().message()));
    GiveUp(failure);
    return failure;
  }
  if (active_->saved[shard]) return std::nullopt;
  active_->saved[shard] = true;
  active_->record.manifest_parts[shard] = *manifest_part;
  if (!is_publishing()) return std::nullopt;
  return active_->record;
}

bool CheckpointTracker::Finish(absl::string_view directory, const Outcome& outcome,
                               absl::Time now) {
  if (directory != active_directory() || !is_active()) return false;
  Record(active_->ticket, outcome);
  if (outcome.ok()) {
    last_ = *outcome;
    last_ledger_ = active_->record.state.ledger;
    last_orders_ = active_->record.state.orders;
    last_at_ = now;
    last_write_time_ = now - active_->begun_at;
  }
  active_.reset();
  return true;
}

void CheckpointTracker::Abort(const absl::Status& reason) {
  if (active_.has_value()) GiveUp(reason);
  EndRequests(reason);
}

void CheckpointTracker::EndRequests(const absl::Status& reason) {
  if (is_requested()) Record(next_ticket_++, reason);
  requested_at_.reset();
}

void CheckpointTracker::GiveUp(const absl::Status& reason) {
  Record(active_->ticket, reason);
  given_up_ = active_->record.directory;
  active_.reset();
}

void CheckpointTracker::SetLast(const PublishedCheckpoint& checkpoint, const LedgerState& ledger,
                                const StandingOrders& orders, absl::Time written_at) {
  last_ = checkpoint;
  last_ledger_ = ledger;
  last_orders_ = orders;
  last_at_ = written_at;
  last_write_time_ = absl::ZeroDuration();
}

std::optional<CheckpointTracker::Outcome> CheckpointTracker::OutcomeOf(uint64_t ticket) const {
  auto it = outcomes_.find(ticket);
  if (it != outcomes_.end()) return it->second;
  if (ticket >= next_ticket_ || (active_.has_value() && active_->ticket == ticket)) {
    return std::nullopt;
  }
  return absl::NotFoundError(
      absl::StrCat("the outcome of checkpoint request ", ticket,
                   " is not kept any more; psctl status shows the last checkpoint"));
}

void CheckpointTracker::Record(uint64_t ticket, const Outcome& outcome) {
  outcomes_.insert_or_assign(ticket, outcome);
  while (outcomes_.size() > kMaxOutcomes) outcomes_.erase(outcomes_.begin());
}

}  // namespace lodestar::checkpoints
