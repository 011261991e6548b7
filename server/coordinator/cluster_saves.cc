#include "server/coordinator/cluster_saves.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/runtime/bytes_text.h"
#include "common/runtime/status_macros.h"
#include "server/coordinator/cluster_words.h"
#include "server/coordinator/coordinator_state.h"
#include "server/coordinator/last_save.h"

namespace lodestar {
namespace {

// For workers to push again what a server that was away has not taken.
constexpr absl::Duration kHandInTime = absl::Seconds(2);

// Subject of the alarm that a checkpoint could not be written. The next one that is written ends
// it.
constexpr absl::string_view kCheckpointSubject = "checkpoint";

// Unless --journal_limit says otherwise. A checkpoint is three times the weights with AdamW, so
// that those out of turn add a tenth to what the disk has to take, and a restart reads what was
// written in seconds to a minute.
constexpr int64_t kJournalLimitFactor = 32;
constexpr int64_t kLeastJournalLimit = 1'000'000'000;

// A journal is suggested if it takes at most this share of a round.
constexpr double kSmallShare = 0.01;

// Returns how long a journal would keep a round waiting, at most: it writes and syncs the
// contributions of all members, in fp32, at the pace at which the checkpoint was written, and no
// faster than the checkpoint, however few bytes they have.
absl::Duration JournalTime(const ClusterState& state, absl::Duration write_time,
                           uint64_t checkpoint_bytes) {
  const double round_bytes = static_cast<double>(state.membership.Members().size()) *
                             static_cast<double>(state.layout->num_elements()) * sizeof(float);
  const double share = round_bytes / std::max<double>(1.0, static_cast<double>(checkpoint_bytes));
  return write_time * std::max(1.0, share);
}

// Returns a sentence if a journal would cost next to nothing, else an empty text.
std::string JournalSuggestion(const ClusterState& state, absl::Duration write_time,
                              uint64_t checkpoint_bytes) {
  const absl::Duration round = state.progress.usual_round();
  // The suggestion is made once after each start: with the second checkpoint by time, when rounds
  // have their usual length.
  const bool is_due = state.schedule.memory().pause == 2 * CheckpointSchedule::kFirstPause;
  if (!is_due || state.config.has_journal || state.site.has_value()) return "";
  const absl::Duration journal = JournalTime(state, write_time, checkpoint_bytes);
  if (journal > kSmallShare * round) return "";
  return absl::StrCat("a journal would take at most ",
                      absl::FormatDuration(absl::Ceil(journal, absl::Milliseconds(1))),
                      " of a round of ",
                      absl::FormatDuration(absl::Trunc(round, absl::Milliseconds(1))),
                      ", and a server that is killed would lose nothing: to have one, stop the job "
                      "and start every server with --durability=journal");
}

}  // namespace

absl::StatusOr<uint64_t> ClusterSaves::Request(absl::Time now) {
  if (state_.tuning.is_measuring()) {
    return absl::FailedPreconditionError(
        "nothing to save yet: the job measures how to exchange, and begins anew with what it "
        "chooses");
  }
  if (!state_.saves()) {
    return absl::FailedPreconditionError(
        "nowhere to save: start the servers with --checkpoint_dir");
  }
  if (state_.phase == CoordinatorPhase::kDone && !state_.failure.ok()) return state_.failure;
  if (absl::Status ready = CheckReady(state_, now); !ready.ok() || state_.supply.is_awaited()) {
    return absl::FailedPreconditionError(
        absl::StrCat("nothing to save yet: ", WaitingFor(state_, now)));
  }
  if (!state_.shards.all_serving()) {
    const std::string servers = WaitingForServers(state_, now);
    return absl::UnavailableError(absl::StrCat("no checkpoint without all servers: ",
                                               servers.empty() ? "not all have loaded" : servers));
  }
  return state_.checkpoints.Request(now);
}

void ClusterSaves::BeginIfDue(absl::Time now) {
  if (!state_.saves()) return;
  const Round round = state_.ledger.next_round();
  const bool is_due_by_round = state_.schedule.IsDueByRound(round);
  if (state_.checkpoints.is_active()) {
    if (!is_due_by_round) return;
    outbox_.Remember();
    state_.schedule.OnBegun(round, now);
    outbox_.RaiseAlarm(
        "a checkpoint was left out because the one before it was still being written; "
        "raise --checkpoint_every, or leave out those by time with --checkpoint_interval=0",
        now);
    return;
  }
  // In asynchronous modes the ledger counts grants, of which some are out.
  const auto num_open = static_cast<int64_t>(state_.open.size());
  const Round complete(round.value() - num_open);
  if (!is_due_by_round && !state_.schedule.IsDueByTime(complete, now) &&
      !state_.checkpoints.is_requested()) {
    return;
  }
  if (ServeRequestsWithLast()) return;
  outbox_.Remember();
  state_.schedule.OnBegun(round, now);
  if (!HoldsLast()) Begin(state_.config.checkpoint_dir, now);
}

bool ClusterSaves::ServeRequestsWithLast() {
  if (!state_.checkpoints.is_requested() || !HoldsLast()) return false;
  state_.checkpoints.ServeWithLast();
  outbox_.Touch();
  return true;
}

void ClusterSaves::Begin(absl::string_view folder, const LedgerState& ledger, absl::Time now) {
  const CoordinatorState state{state_.server_incarnation, ledger, state_.membership.Export(),
                               state_.progress.Export(), state_.orders()};
  const Round round(ledger.next_round);
  const std::string directory = state_.checkpoints.Begin(folder, round, state, now);
  SaveCommand command = {.round = std::nullopt,
                         .directory = directory,
                         .folder_claim_id = state_.config.folder_claim_id};
  if (state_.policy->uses_rosters()) command.round = round;
  outbox_.Command(std::move(command));
  outbox_.Tell(absl::StrCat("checkpoint begun directory=", directory));
}

std::optional<LedgerState> ClusterSaves::CompleteRounds() const {
  // With a journal nothing that was acknowledged is lost. The weights of a site are its upstream's.
  if (state_.config.has_journal || state_.site.has_value()) return std::nullopt;
  LedgerState ledger = state_.ledger.state();
  const bool is_training = state_.phase == CoordinatorPhase::kRunning;
  if (!is_training || !state_.policy->uses_rosters()) return ledger;
  std::optional<LedgerState> before = state_.before_open_round;
  if (!before.has_value()) return std::nullopt;
  // Operators may have changed it since.
  before->learning_rate_scale = ledger.learning_rate_scale;
  before->scale_by_operators = ledger.scale_by_operators;
  return before;
}

bool ClusterSaves::IsOpenRoundSooner(absl::Time now) const {
  const absl::Duration usual = state_.progress.usual_round();
  const absl::Duration age = now - state_.open.rbegin()->second.opened_at();
  return age < usual && usual - age <= state_.schedule.memory().write_time;
}

bool ClusterSaves::SaveCompleteRounds(absl::Time now) {
  if (!state_.is_work_held() && !state_.is_stopping()) return false;
  if (state_.open.empty() || !state_.saves() || state_.supply.is_awaited() ||
      state_.checkpoints.is_active() || !state_.shards.all_serving() || state_.is_shard_away()) {
    return false;
  }
  const std::optional<LedgerState> complete = CompleteRounds();
  // A job without a complete round begins anew with the same weights.
  if (!complete.has_value() || complete->next_round == 0) return false;
  if (saved_before_round_ == complete->next_round || IsOpenRoundSooner(now)) return false;
  saved_before_round_ = complete->next_round;
  if (state_.checkpoints.HoldsLast(*complete, state_.orders())) return false;
  outbox_.Remember();
  Begin(state_.config.checkpoint_dir, *complete, now);
  early_directory_ = std::string(state_.checkpoints.active_directory());
  return true;
}

bool ClusterSaves::OnJournalSize(int shard, int64_t bytes, absl::Time now) {
  if (!state_.is_ready() || !state_.shards.Has(shard)) return false;
  const int64_t weights = state_.map->servers[shard].range.size() * int64_t{sizeof(float)};
  const int64_t limit = state_.config.journal_limit_bytes > 0
                            ? state_.config.journal_limit_bytes
                            : std::max(kLeastJournalLimit, kJournalLimitFactor * weights);
  if (bytes <= limit) {
    long_journals_.erase(shard);
    return false;
  }
  const auto [asked, is_first] = long_journals_.emplace(shard, bytes);
  // A journal that is shorter was cut since then, and has grown beyond the limit all the same.
  const bool has_outgrown = bytes < asked->second || bytes > asked->second + limit;
  if (!is_first && !has_outgrown) return false;
  asked->second = bytes;
  outbox_.Tell(absl::StrCat("shard ", shard, " has written ", BytesText(bytes),
                            " into its journal since the newest checkpoint, more than "
                            "--journal_limit=",
                            BytesText(limit), ": a checkpoint is taken out of turn"));
  // A checkpoint that is under way may have begun before that was written, so another one is
  // requested.
  if (state_.saves()) state_.checkpoints.Request(now);
  return state_.saves();
}

void ClusterSaves::OnShardAway(int shard, absl::Time now) {
  // Callers that have asked for a checkpoint may ask again, and a journal that is too long asks
  // again as well.
  long_journals_.clear();
  state_.checkpoints.EndRequests(absl::UnavailableError(
      absl::StrCat("no checkpoint without all servers: ", WaitingForServers(state_, now))));
  if (state_.checkpoints.is_publishing()) return;  // needs nothing more of the shards
  // What it has written, and the command, may be lost on their way. For the last save that is no
  // failed try: the next one comes once the server is back.
  if (!state_.checkpoints.is_active()) return;
  const std::string lost =
      absl::StrCat("the server of shard ", shard, " was away while the checkpoint was written");
  GiveUp(absl::UnavailableError(lost));
  outbox_.RaiseAlarm(lost, now);
}

void ClusterSaves::GiveUp(const absl::Status& reason) {
  if (state_.checkpoints.is_active()) {
    outbox_.Do(DiscardTask{std::string(state_.checkpoints.active_directory())});
  }
  state_.checkpoints.Abort(reason);
}

absl::Status ClusterSaves::OnShardSaved(int shard, const ShardSaved& saved, absl::Time now) {
  const std::string& directory = saved.directory;
  // What a shard has written since then would stay there, and take the room of later tries.
  if (state_.checkpoints.IsGivenUp(directory)) outbox_.Do(DiscardTask{directory});
  if (saved.server_incarnation != state_.server_incarnation || !state_.shards.Has(shard)) {
    return absl::OkStatus();
  }
  auto record = state_.checkpoints.OnSaved(shard, directory, saved.manifest_part);
  if (!record.has_value()) return absl::OkStatus();
  if (!record->ok()) return OnFailed(directory, record->status(), now);
  (*record)->job = state_.config.job;
  (*record)->layout = *state_.layout;
  JournalManifest& journal = (*record)->journal;
  journal.journal_id = state_.journal_id;
  for (const ShardRegistry::Entry& entry : state_.shards.entries()) {
    journal.shard_records.push_back(entry.journal_end);
  }
  journal.is_complete = has_everything_ = HasEverything((*record)->state);
  outbox_.Do(**std::move(record));
  return absl::OkStatus();
}

bool ClusterSaves::HasEverything(const CoordinatorState& saved) const {
  const bool hands_out_work = !state_.is_stopping() && !state_.is_work_held() &&
                              state_.phase != CoordinatorPhase::kSaving &&
                              state_.phase != CoordinatorPhase::kDone;
  return !hands_out_work && state_.open.empty() && saved.ledger == state_.ledger.state() &&
         saved.orders == state_.orders();
}

absl::Status ClusterSaves::OnPublished(absl::string_view directory,
                                       const absl::StatusOr<PublishedCheckpoint>& published,
                                       absl::Time now) {
  // Copied: it may be a view of what Finish() ends.
  const std::string temporary(directory);
  absl::StatusOr<PublishedCheckpoint> outcome = published;
  if (outcome.ok()) outcome->is_in_fallback = state_.IsInFallback(outcome->path);
  if (!state_.checkpoints.Finish(temporary, outcome, now)) return absl::OkStatus();
  if (!published.ok()) {
    return OnFailed(
        temporary,
        absl::Status(published.status().code(),
                     absl::StrCat("checkpoint ", temporary, ": ", published.status().message())),
        now);
  }
  const absl::Duration write_time = state_.checkpoints.Snapshot(now)->write_time;
  state_.schedule.OnWritten(write_time);
  outbox_.SetAlarm(kCheckpointSubject, absl::OkStatus(), now);
  if (!published->alarm.empty()) outbox_.RaiseAlarm(published->alarm, now);
  outbox_.Tell(absl::StrCat(
      "checkpoint published path=", published->path, " round=", published->round.value(),
      " bytes=", published->bytes,
      " took=", absl::FormatDuration(absl::Trunc(write_time, absl::Milliseconds(1))),
      state_.schedule.is_stretched()
          ? absl::StrCat(" next_in=", absl::FormatDuration(absl::Trunc(state_.schedule.interval(),
                                                                       absl::Seconds(1))))
          : ""));
  if (const std::string text = JournalSuggestion(state_, write_time, published->bytes);
      !text.empty()) {
    outbox_.Tell(text);
  }
  state_.complete_checkpoint = has_everything_ ? published->path : "";
  state_.published = PublishedCommand{temporary, published->path, published->round};
  outbox_.Command(*state_.published);
  outbox_.Touch();
  return absl::OkStatus();
}

absl::Status ClusterSaves::OnFailed(absl::string_view directory, const absl::Status& error,
                                    absl::Time now) {
  outbox_.Do(DiscardTask{std::string(directory)});
  const bool is_early = directory == early_directory_;
  if (is_early && absl::IsFailedPrecondition(error)) {
    outbox_.Tell(absl::StrCat("checkpoint given up directory=", directory,
                              ": the open round has come meanwhile, and is saved with the others"));
    return absl::OkStatus();
  }
  // The same words for every round and try, so that a full disk is one alarm and not one per try.
  const size_t folder_end = directory.rfind('/');
  const std::string any = absl::StrCat(directory.substr(0, folder_end), "/round-N");
  outbox_.SetAlarm(
      kCheckpointSubject,
      absl::Status(error.code(), absl::StrReplaceAll(error.message(), {{directory, any}})), now);
  if (is_early) return absl::OkStatus();  // the tries of the last save follow
  state_.last_save.OnFailed(error, now);
  if (!state_.last_save.outcome().has_value()) return absl::OkStatus();
  absl::Status failure = EndLast(error);
  outbox_.RaiseAlarm(absl::StrCat("NOT SAVED: ", state_.last_save.outcome()->status().message()),
                     now);
  return failure;
}

absl::Status ClusterSaves::BeginLast(absl::string_view reason, absl::Duration patience,
                                     absl::Time now) {
  if (state_.should_exit && state_.last_save.outcome().has_value()) return absl::OkStatus();
  if (state_.save_askers.insert(std::string(reason)).second) {
    state_.hold_reason = std::string(reason);
    state_.drop_missing_at = std::min(state_.drop_missing_at, now + patience / 2);
    state_.away_until = std::max(state_.away_until, now + patience / 2);
  } else if (is_last_under_way()) {
    return absl::OkStatus();
  }
  outbox_.Touch();
  const absl::Status ready = CheckReady(state_, now);
  // A server that has just gone away may be back in time, if anything is missing at all.
  if (ready.ok() && (state_.shards.all_serving() || (!state_.shards.any_told() && !HoldsLast()))) {
    state_.last_save.Begin(/*gives_up=*/true, now);
    return absl::OkStatus();
  }
  if (state_.last_save.outcome().has_value()) return absl::OkStatus();
  const std::string reason_not = WaitingFor(state_, now);
  return EndLast(ready.ok() ? absl::DataLossError(reason_not)
                            : absl::FailedPreconditionError(reason_not));
}

absl::Status ClusterSaves::EndLast(const absl::Status& error) {
  outbox_.Touch();
  if (state_.last_save.outcome().has_value() && state_.last_save.outcome()->ok()) {
    return absl::OkStatus();
  }
  // Before the journals have been compared, there may be later rounds than this process knows.
  if (HoldsLast() && !state_.is_comparing()) {
    const std::string& path = state_.checkpoints.last()->path;
    if (state_.journal_id != 0 && state_.complete_checkpoint != path) {
      state_.complete_checkpoint = path;
      outbox_.Do(MarkTask{path, /*is_complete=*/true});
    }
    state_.last_save.End(*state_.checkpoints.last());
  } else {
    const std::string unsaved = UnsavedText(state_);
    state_.last_save.End(absl::Status(
        error.code(), absl::StrCat(unsaved, unsaved.empty() ? "" : ": ", error.message())));
  }
  if (state_.shard_failure.ok()) return absl::OkStatus();
  const LastSave::Outcome& outcome = *state_.last_save.outcome();
  return absl::Status(state_.shard_failure.code(),
                      absl::StrCat(state_.shard_failure.message(), "; ",
                                   outcome.ok() ? absl::StrCat("all is saved in ", outcome->path)
                                                : std::string(outcome.status().message())));
}

absl::StatusOr<bool> ClusterSaves::AdvanceLast(absl::Time now) {
  if (state_.checkpoints.is_active()) return false;
  if (ServeRequestsWithLast()) return true;
  if (!is_last_under_way()) return false;
  if (!state_.failure.ok()) {
    RETURN_IF_ERROR(EndLast(state_.failure));
    return true;
  }
  if (!state_.saves() || state_.supply.is_awaited() || HoldsLast()) {
    const std::string why = state_.saves()                 ? WaitingFor(state_, now)
                            : state_.tuning.is_measuring() ? "the job was still measuring how to "
                                                             "exchange, of which nothing is kept"
                                                           : "no --checkpoint_dir";
    RETURN_IF_ERROR(EndLast(absl::FailedPreconditionError(why)));
    return true;
  }
  if (state_.is_shard_away()) return false;
  const std::optional<LastSave::Place> place = state_.last_save.Due(now);
  if (!place.has_value()) return false;
  Begin(*place == LastSave::Place::kFallback ? state_.config.fallback_dir
                                             : state_.config.checkpoint_dir,
        now);
  return true;
}

absl::Status ClusterSaves::OnStillAway(int shard, absl::Time now) {
  // Without a process that waits to exit there is time until the server is back.
  if (!state_.is_work_held() || now < state_.away_until || !is_last_under_way()) {
    return absl::OkStatus();
  }
  return EndLast(absl::DataLossError(absl::StrCat("the server of shard ", shard,
                                                  " gave no sign of life for half of "
                                                  "--stop_timeout; the other half is for "
                                                  "writing, which takes every server")));
}

// It is not the workers that hold up what waits for a server, or a save that has ended.
bool ClusterSaves::IsHeldUp(absl::Time now) const {
  return now >= state_.drop_missing_at && (is_last_under_way() || state_.is_stopping()) &&
         !state_.is_shard_away() && now - state_.shards.back_at() >= kHandInTime;
}

std::string ClusterSaves::HeldUpReason() const {
  if (state_.is_work_held()) {
    return absl::StrCat("held up the last checkpoint: ", state_.hold_reason);
  }
  return absl::StrCat("has not handed in its round within --stop_timeout=",
                      absl::FormatDuration(state_.config.stop_timeout),
                      ", and the job is stopped: ", *state_.stop_reason);
}

void ClusterSaves::ForgetLast() {
  saved_before_round_.reset();
  state_.hold_reason.clear();
  state_.last_save = LastSave(!state_.config.fallback_dir.empty());
}

bool ClusterSaves::ForgetAsker(absl::string_view reason) {
  if (state_.save_askers.erase(std::string(reason)) == 0 || !state_.save_askers.empty()) {
    return false;
  }
  ForgetLast();
  state_.away_until = absl::InfinitePast();
  if (!state_.is_stopping()) state_.drop_missing_at = absl::InfiniteFuture();
  outbox_.Touch();
  return true;
}

void ClusterSaves::Restart(const CoordinatorState& on_disk, absl::Time now) {
  ForgetLast();
  state_.save_askers.clear();
  state_.drop_missing_at = absl::InfiniteFuture();
  state_.not_waited_for.clear();
  state_.published.reset();
  state_.before_open_round.reset();
  const auto* checkpoint = std::get_if<CheckpointSource>(&state_.source);
  if (checkpoint == nullptr) return state_.checkpoints.ForgetLast();
  const bool is_fallback = state_.IsInFallback(checkpoint->directory);
  // In the fallback it is no reason not to save where it belongs.
  state_.checkpoints.SetLast({.path = checkpoint->directory,
                              .round = state_.ledger.next_round(),
                              .bytes = checkpoint->bytes,
                              .is_in_fallback = is_fallback},
                             is_fallback ? LedgerState{.next_round = -1} : on_disk.ledger,
                             on_disk.orders, now - checkpoint->age);
}

void ClusterSaves::OnShardBack(absl::Time now) {
  if (state_.is_shard_away() || !state_.is_ready()) return;
  if (state_.checkpoints.HasOther(state_.orders(), state_.faults.memory().learning_rate_scale)) {
    OnOrdersChanged(now);
  }
}

void ClusterSaves::OnOrdersChanged(absl::Time now) {
  if (state_.saves()) state_.checkpoints.Request(now);
}

}  // namespace lodestar
