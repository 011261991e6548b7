// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/checkpoints/checkpoint_manager.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lodestar::checkpoints {
namespace {

// Returns `limit`, doubled as often as the result stays below `time`. Not set means that `time`
// does not exceed `limit`. Requires: `limit` is positive.
std::optional<absl::Duration> LimitBelow(absl::Duration limit, absl::Duration time) {
  if (time <= limit) return std::nullopt;
  while (2 * limit < time) limit *= 2;
  return limit;
}

}  // namespace

CheckpointManager::CheckpointManager(Config config)
    : config_(std::move(config)),
      tracker_(config_.num_shards),
      schedule_(config_.schedule),
      last_save_(!config_.fallback_folder.empty()) {}

void CheckpointManager::Resume(const Memory& memory) {
  tracker_.Resume(memory.tracker);
  schedule_.Resume(memory.schedule);
}

bool CheckpointManager::IsDue(Round next_round, int64_t num_open, absl::Time now) const {
  if (schedule_.IsDueByRound(next_round)) return true;
  if (tracker_.is_active()) return false;
  return schedule_.IsDueByTime(Round(next_round.value() - num_open), now) ||
         tracker_.is_requested();
}

DueVerdict CheckpointManager::OnDue(const CheckpointFacts& facts, absl::Time now) {
  const bool is_left_out = tracker_.is_active();
  if (!is_left_out && ServeRequestsWithNewest(facts)) return DueVerdict::kServed;
  schedule_.OnBegun(Round(facts.ledger.next_round), now);
  if (is_left_out) return DueVerdict::kLeftOut;
  return HoldsAll(facts.ledger, facts.orders) ? DueVerdict::kNothingNew : DueVerdict::kBegin;
}

bool CheckpointManager::ServeRequestsWithNewest(const CheckpointFacts& facts) {
  if (!tracker_.is_requested() || !HoldsAll(facts.ledger, facts.orders)) return false;
  tracker_.ServeWithLast();
  return true;
}

// Returns the ledger after the last complete round, for an early checkpoint. Not set means that
// this ledger is not known, or that the job needs no early checkpoint.
std::optional<LedgerState> CheckpointManager::CompleteRounds(const CheckpointFacts& facts) const {
  // A job with a journal does not lose acknowledged reports. The servers upstream save the weights
  // of a site. Both need no early checkpoint.
  if (config_.has_journal || config_.is_site) return std::nullopt;
  if (!facts.is_training || !facts.uses_rosters) return facts.ledger;
  std::optional<LedgerState> before = facts.before_open_round;
  if (!before.has_value()) return std::nullopt;
  // The learning rate is the present one: operators may have changed it since the round was opened.
  before->learning_rate_scale = facts.ledger.learning_rate_scale;
  before->scale_by_operators = facts.ledger.scale_by_operators;
  return before;
}

bool CheckpointManager::IsOpenRoundSooner(const CheckpointFacts& facts, absl::Time now) const {
  const absl::Duration age = now - facts.opened_at;
  return age < facts.usual_round && facts.usual_round - age <= schedule_.memory().write_time;
}

std::optional<CheckpointTry> CheckpointManager::SaveCompleteRounds(const CheckpointFacts& facts,
                                                                   absl::Time now) {
  if (!facts.saves || facts.awaits_weights || tracker_.is_active() || !facts.all_serving ||
      facts.is_shard_away) {
    return std::nullopt;
  }
  std::optional<LedgerState> complete = CompleteRounds(facts);
  // A job without a complete round starts from the same weights after a restart, so nothing is
  // lost.
  if (!complete.has_value() || complete->next_round == 0) return std::nullopt;
  if (saved_before_round_ == complete->next_round || IsOpenRoundSooner(facts, now)) {
    return std::nullopt;
  }
  saved_before_round_ = complete->next_round;
  if (HoldsAll(*complete, facts.orders)) return std::nullopt;
  return CheckpointTry{.ledger = *std::move(complete), .is_early = true};
}

std::string CheckpointManager::Begin(const CheckpointTry& begun, CoordinatorState state,
                                     absl::Time now) {
  state.ledger = begun.ledger;
  const bool is_fallback = begun.place == LastSave::Place::kFallback;
  std::string directory = tracker_.Begin(is_fallback ? config_.fallback_folder : config_.folder,
                                         Round(state.ledger.next_round), state, now);
  if (begun.is_early) early_directory_ = directory;
  return directory;
}

std::optional<absl::StatusOr<CheckpointRecord>> CheckpointManager::OnSaved(
    int shard, absl::string_view directory, const absl::StatusOr<std::string>& manifest_part,
    const CheckpointFacts& facts) {
  auto record = tracker_.OnSaved(shard, directory, manifest_part);
  if (!record.has_value() || !record->ok()) return record;
  // If the saved state is the present state and no work is handed out, the checkpoint is complete.
  // Until work is handed out again, no further report can be acknowledged.
  const CoordinatorState& state = (*record)->state;
  has_everything_ = !facts.hands_out_work && facts.num_open == 0 && state.ledger == facts.ledger &&
                    state.orders == facts.orders;
  (*record)->journal.is_complete = has_everything_;
  return record;
}

PublishedVerdict CheckpointManager::OnPublished(absl::string_view directory,
                                                absl::StatusOr<PublishedCheckpoint> published,
                                                absl::Time now) {
  if (published.ok()) published->is_in_fallback = IsInFallback(published->path);
  if (!tracker_.Finish(directory, published, now)) return {};
  if (!published.ok()) return {.kind = PublishedVerdict::Kind::kFailed};
  schedule_.OnWritten(tracker_.last_write_time());
  complete_ = has_everything_ ? published->path : "";
  PublishedVerdict verdict = {.kind = PublishedVerdict::Kind::kPublished,
                              .write_time = tracker_.last_write_time()};
  if (schedule_.is_stretched()) verdict.next_in = schedule_.interval();
  // A killed server loses nothing that its journal has. A site's weights are saved upstream.
  if (config_.has_journal || config_.is_site) return verdict;
  verdict.outlasts_stop = LimitBelow(config_.stop_write_time, schedule_.write_time());
  if (verdict.next_in > kNearEnough) {
    verdict.far_apart = LimitBelow(kFarApart * config_.schedule.interval, *verdict.next_in);
  }
  return verdict;
}

// Estimates the time that a journal takes to write and sync the contributions of all members. The
// estimate assumes the speed at which the last checkpoint was written. If the contributions have
// fewer bytes than that checkpoint, they count as taking just as long.
std::optional<absl::Duration> CheckpointManager::JournalToSuggest(
    double round_bytes, absl::Duration usual_round) const {
  // The suggestion is made only once after each start: after the second checkpoint that was due by
  // time. By then, rounds have their usual length.
  const bool is_due = schedule_.memory().pause == 2 * CheckpointSchedule::kFirstPause;
  if (!is_due || config_.has_journal || config_.is_site) return std::nullopt;
  const auto checkpoint_bytes = static_cast<double>(tracker_.last()->bytes);
  const double share = round_bytes / std::max(1.0, checkpoint_bytes);
  const absl::Duration journal = tracker_.last_write_time() * std::max(1.0, share);
  if (journal > kSmallShare * usual_round) return std::nullopt;
  return journal;
}

FailedVerdict CheckpointManager::OnFailed(absl::string_view directory, const absl::Status& error,
                                          absl::Time now) {
  if (directory == early_directory_) {
    // An early checkpoint that has failed is not tried again. The last save follows and has the
    // same rounds.
    return absl::IsFailedPrecondition(error) ? FailedVerdict::kOvertaken : FailedVerdict::kAlarm;
  }
  if (!last_save_.is_under_way()) return FailedVerdict::kAlarm;
  last_save_.OnFailed(error, now);
  return last_save_.outcome().has_value() ? FailedVerdict::kLastTry : FailedVerdict::kAlarm;
}

bool CheckpointManager::OnShardAway(const absl::Status& error) {
  // If a shard's journal is still too long, its next OnJournalSize() requests the checkpoint again.
  // Other callers may repeat their requests, too.
  long_journals_.clear();
  tracker_.EndRequests(error);
  return tracker_.is_active() && !tracker_.is_publishing();
}

std::string CheckpointManager::GiveUp(const absl::Status& error) {
  std::string directory(tracker_.active_directory());
  tracker_.Abort(error);
  return directory;
}

std::optional<int64_t> CheckpointManager::OnJournalSize(int shard, int64_t bytes,
                                                        int64_t weights_bytes) {
  const int64_t limit = config_.journal_limit_bytes > 0
                            ? config_.journal_limit_bytes
                            : std::max(kLeastJournalLimit, kJournalLimitFactor * weights_bytes);
  if (bytes <= limit) {
    long_journals_.erase(shard);
    return std::nullopt;
  }
  const auto [asked, is_first] = long_journals_.emplace(shard, bytes);
  // If a journal is shorter than when its last checkpoint was requested, it was cut since then. It
  // is beyond the limit once more.
  const bool has_outgrown = bytes < asked->second || bytes > asked->second + limit;
  if (!is_first && !has_outgrown) return std::nullopt;
  asked->second = bytes;
  return limit;
}

bool CheckpointManager::AwaitLast(const CheckpointFacts& facts, absl::Time now) {
  // A server that has just gone away may be back in time for a new checkpoint. Waiting for the
  // server is useful only if the newest checkpoint lacks a part of the present state.
  const bool may_serve =
      facts.all_serving || (!facts.is_shard_long_away && !HoldsAll(facts.ledger, facts.orders));
  if (!facts.is_ready || !may_serve) return last_save_.outcome().has_value();
  last_save_.Begin(/*gives_up=*/true, now);
  return true;
}

LastSaveVerdict CheckpointManager::AdvanceLast(const CheckpointFacts& facts, absl::Time now) {
  using Kind = LastSaveVerdict::Kind;
  if (tracker_.is_active()) return {};
  if (ServeRequestsWithNewest(facts)) return {Kind::kServed};
  if (!last_save_.is_under_way()) return {};
  if (facts.has_failed) return {Kind::kJobFailed};
  if (!facts.saves || facts.awaits_weights || HoldsAll(facts.ledger, facts.orders)) {
    return {Kind::kNothingToSave};
  }
  if (facts.is_shard_away) return {};
  const std::optional<LastSave::Place> place = last_save_.Due(now);
  if (!place.has_value()) return {};
  return {Kind::kBegin, *place};
}

LastSaveEnd CheckpointManager::EndLast(const CheckpointFacts& facts, const absl::Status& error) {
  if (last_save_.outcome().has_value() && last_save_.outcome()->ok()) {
    return LastSaveEnd::kOverBefore;
  }
  // Before the journals have been compared, this process may not know the latest rounds. So it
  // cannot say that the newest checkpoint has them.
  if (facts.is_comparing || !HoldsAll(facts.ledger, facts.orders)) {
    last_save_.End(error);
    return LastSaveEnd::kUnsaved;
  }
  const PublishedCheckpoint& newest = *tracker_.last();
  last_save_.End(newest);
  if (facts.journal_id == 0 || complete_ == newest.path) return LastSaveEnd::kHeld;
  complete_ = newest.path;
  return LastSaveEnd::kHeldUnmarked;
}

void CheckpointManager::ForgetLast() {
  saved_before_round_.reset();
  last_save_ = LastSave(!config_.fallback_folder.empty());
}

void CheckpointManager::Restart(PublishedCheckpoint checkpoint, const LedgerState& ledger,
                                const StandingOrders& orders, absl::Time written_at) {
  checkpoint.is_in_fallback = IsInFallback(checkpoint.path);
  // A checkpoint in the fallback folder must not prevent a save to the usual folder. Therefore it
  // is stored with a ledger that never equals the present one.
  tracker_.SetLast(checkpoint, checkpoint.is_in_fallback ? LedgerState{.next_round = -1} : ledger,
                   orders, written_at);
}

bool CheckpointManager::IsInFallback(absl::string_view checkpoint) const {
  return !config_.fallback_folder.empty() &&
         absl::StartsWith(checkpoint, absl::StrCat(config_.fallback_folder, "/"));
}

Reopening CheckpointManager::AwaitReopening(uint64_t journal_id) {
  if (journal_id == 0) return Reopening::kNone;
  if (has_everything_ && tracker_.is_publishing()) return Reopening::kAwaited;
  if (complete_.empty()) return Reopening::kNone;
  if (is_reopening_ || reopens_at_.has_value()) return Reopening::kAwaited;
  is_reopening_ = true;
  return Reopening::kBegin;
}

void CheckpointManager::OnReopened(bool is_ok, absl::Time now) {
  is_reopening_ = false;
  if (is_ok) {
    complete_.clear();
  } else {
    reopens_at_ = now + kReopenPause;
  }
}

bool CheckpointManager::TriesReopeningAgain(absl::Time now) {
  if (!reopens_at_.has_value() || now < *reopens_at_) return false;
  reopens_at_.reset();
  return true;
}

}  // namespace lodestar::checkpoints
