// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/cluster_saves.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/runtime/bytes_text.h"
#include "common/runtime/status_macros.h"
#include "server/coordinator/checkpoints/coordinator_state.h"
#include "server/coordinator/cluster_words.h"

namespace lodestar::coordinator {
namespace {

// Subject of the alarm that a checkpoint could not be written. The next checkpoint that is written
// ends the alarm.
constexpr absl::string_view kCheckpointSubject = "checkpoint";
// Subject of the alarm that files in the folder could not be renamed or removed. The next
// checkpoint after which all of them could be ends the alarm.
constexpr absl::string_view kFolderSubject = "checkpoint folder";

// Subjects of the alarms that writing takes longer than a stopping server has, and that checkpoints
// are far apart. A checkpoint that was written fast enough ends the alarm.
constexpr absl::string_view kStopSubject = "checkpoint outlasts stop";
constexpr absl::string_view kIntervalSubject = "checkpoint interval";

// Returns the log line about a checkpoint that was published.
std::string PublishedText(const checkpoints::PublishedCheckpoint& published,
                          const checkpoints::PublishedVerdict& verdict) {
  return absl::StrCat(
      "checkpoint published path=", published.path, " round=", published.round.value(),
      " bytes=", published.bytes,
      " took=", absl::FormatDuration(absl::Trunc(verdict.write_time, absl::Milliseconds(1))),
      verdict.next_in.has_value()
          ? absl::StrCat(" next_in=",
                         absl::FormatDuration(absl::Trunc(*verdict.next_in, absl::Seconds(1))))
          : "");
}

// Returns an error if a server that is told to stop may not be able to write its last checkpoint.
// The text stays the same while writing takes about as long, so that it causes one alarm.
absl::Status OutlastsStop(const checkpoints::PublishedVerdict& verdict,
                          absl::Duration stop_timeout) {
  if (!verdict.outlasts_stop.has_value()) return absl::OkStatus();
  const absl::Duration given = ending::JobEnding::WriteTimeOf(stop_timeout);
  const absl::Duration enough = stop_timeout * (2 * *verdict.outlasts_stop / given);
  return absl::DeadlineExceededError(absl::StrCat(
      "writing a checkpoint takes more than ", absl::FormatDuration(*verdict.outlasts_stop),
      ", but --stop_timeout=", absl::FormatDuration(stop_timeout), " leaves ",
      absl::FormatDuration(given),
      " for it, so SIGTERM may lose the rounds since the last checkpoint. Give --stop_timeout=",
      absl::FormatDuration(enough)));
}

// Returns an error if checkpoints are far apart because writing takes long. For the text see
// OutlastsStop().
absl::Status AreFarApart(const checkpoints::PublishedVerdict& verdict,
                         const checkpoints::CheckpointSchedule::Config& schedule) {
  if (!verdict.far_apart.has_value()) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat(
      "checkpoints are more than ", absl::FormatDuration(*verdict.far_apart),
      " apart instead of --checkpoint_interval=", absl::FormatDuration(schedule.interval),
      ", because writing them would take more than --checkpoint_cost=", schedule.max_cost,
      " of the time. A killed server loses the rounds since the last one. Raise "
      "--checkpoint_cost, or use a faster disk or --durability=journal"));
}

// Returns the log line that suggests a journal, because it would take little time.
std::string JournalSuggestion(absl::Duration journal_time, absl::Duration usual_round) {
  return absl::StrCat("a journal would take at most ",
                      absl::FormatDuration(absl::Ceil(journal_time, absl::Milliseconds(1))),
                      " of a round of ",
                      absl::FormatDuration(absl::Trunc(usual_round, absl::Milliseconds(1))),
                      ", and then a killed server would lose nothing. To use a journal, stop the "
                      "job and start every server with --durability=journal");
}

// Says why the last save has nothing to save, or no folder to save into.
std::string NothingToSaveText(const ClusterState& state, absl::Time now) {
  if (state.saves()) return WaitingFor(state, now);
  return state.model.tuning().is_measuring() ? "the job was still measuring to choose its exchange "
                                               "settings, and steps of that time are not kept"
                                             : "no --checkpoint_dir";
}

}  // namespace

checkpoints::CheckpointFacts ClusterSaves::Facts() const {
  return {.ledger = state_.rounds.ledger().state(),
          .before_open_round = state_.rounds.before_open_round(),
          .orders = state_.orders(),
          .num_open = static_cast<int64_t>(state_.rounds.open().size()),
          .opened_at = state_.rounds.open().empty()
                           ? absl::InfinitePast()
                           : state_.rounds.open().rbegin()->second.opened_at(),
          .usual_round = state_.rounds.progress().usual_round(),
          .journal_id = state_.journal_id,
          .saves = state_.saves(),
          .is_training = state_.phase == CoordinatorPhase::kRunning,
          .uses_rosters = state_.rounds.uses_rosters(),
          .hands_out_work = !state_.ending.is_stopping() && !state_.ending.is_work_held() &&
                            state_.phase != CoordinatorPhase::kSaving &&
                            state_.phase != CoordinatorPhase::kDone,
          .is_ready = state_.is_ready(),
          .is_comparing = state_.is_comparing(),
          .awaits_weights = state_.model.supply().is_awaited(),
          .has_failed = !state_.ending.failure().ok(),
          .is_shard_away = state_.is_shard_away(),
          .all_serving = state_.shards.all_serving(),
          .is_shard_long_away = state_.shards.any_told()};
}

absl::StatusOr<uint64_t> ClusterSaves::Request(absl::Time now) {
  if (state_.model.tuning().is_measuring()) {
    return absl::FailedPreconditionError(
        "there is nothing to save yet: the job is measuring to choose its exchange settings, and "
        "begins at round 0 after that");
  }
  if (!state_.saves()) {
    return absl::FailedPreconditionError(
        "there is no folder for checkpoints; start the servers with --checkpoint_dir");
  }
  if (state_.phase == CoordinatorPhase::kDone && !state_.ending.failure().ok()) {
    return state_.ending.failure();
  }
  if (absl::Status ready = CheckReady(state_, now);
      !ready.ok() || state_.model.supply().is_awaited()) {
    return absl::FailedPreconditionError(
        absl::StrCat("there is nothing to save yet: ", WaitingFor(state_, now)));
  }
  if (!state_.shards.all_serving()) {
    const std::string servers = WaitingForServers(state_, now);
    return absl::UnavailableError(
        absl::StrCat("a checkpoint needs all servers: ",
                     servers.empty() ? "not all servers have loaded their weights" : servers));
  }
  return state_.checkpoints.Request(now);
}

void ClusterSaves::BeginIfDue(absl::Time now) {
  const auto num_open = static_cast<int64_t>(state_.rounds.open().size());
  if (!state_.saves() ||
      !state_.checkpoints.IsDue(state_.rounds.ledger().next_round(), num_open, now)) {
    return;
  }
  const checkpoints::CheckpointFacts facts = Facts();
  const checkpoints::DueVerdict verdict = state_.checkpoints.OnDue(facts, now);
  if (verdict == checkpoints::DueVerdict::kServed) return outbox_.Touch();
  outbox_.Remember();
  if (verdict == checkpoints::DueVerdict::kBegin) Begin({.ledger = facts.ledger}, now);
  if (verdict != checkpoints::DueVerdict::kLeftOut) return;
  outbox_.RaiseAlarm(
      "a checkpoint was skipped, because the previous checkpoint was still being written. Raise "
      "--checkpoint_every, or turn off checkpoints by time with --checkpoint_interval=0",
      now);
}

void ClusterSaves::Begin(const checkpoints::CheckpointTry& begun, absl::Time now) {
  checkpoints::CoordinatorState state{.server_incarnation = state_.shards.server_incarnation(),
                                      .ledger = {},
                                      .membership = state_.membership.table().Export(),
                                      .progress = state_.rounds.progress().Export(),
                                      .orders = state_.orders()};
  const std::string directory = state_.checkpoints.Begin(begun, std::move(state), now);
  shards::SaveCommand command = {.round = std::nullopt,
                                 .directory = directory,
                                 .folder_claim_id = state_.config.folder_claim_id};
  if (state_.rounds.uses_rosters()) command.round = Round(begun.ledger.next_round);
  outbox_.Command(std::move(command));
  outbox_.Tell(absl::StrCat("checkpoint begun directory=", directory));
}

bool ClusterSaves::SaveCompleteRounds(absl::Time now) {
  if ((!state_.ending.is_work_held() && !state_.ending.is_stopping()) ||
      state_.rounds.open().empty()) {
    return false;
  }
  const std::optional<checkpoints::CheckpointTry> early =
      state_.checkpoints.SaveCompleteRounds(Facts(), now);
  if (!early.has_value()) return false;
  outbox_.Remember();
  Begin(*early, now);
  return true;
}

bool ClusterSaves::OnJournalSize(int shard, int64_t bytes, absl::Time now) {
  if (!state_.is_ready() || !state_.shards.Has(shard)) return false;
  const int64_t weights = state_.model.map()->servers[shard].range.size() * int64_t{sizeof(float)};
  const std::optional<int64_t> limit = state_.checkpoints.OnJournalSize(shard, bytes, weights);
  if (!limit.has_value()) return false;
  outbox_.Tell(absl::StrCat("shard ", shard, " has written ", BytesText(bytes),
                            " into its journal since the newest checkpoint, more than "
                            "--journal_limit=",
                            BytesText(*limit), "; an additional checkpoint is taken"));
  // A checkpoint that is under way may lack the newest records of the journal, so another
  // checkpoint is requested.
  if (state_.saves()) state_.checkpoints.Request(now);
  return state_.saves();
}

void ClusterSaves::OnShardAway(int shard, absl::Time now) {
  const bool needs_shard = state_.checkpoints.OnShardAway(absl::UnavailableError(
      absl::StrCat("a checkpoint needs all servers: ", WaitingForServers(state_, now))));
  if (!needs_shard) return;
  // The SaveCommand may not have reached the server, or the server's answer may be lost. So the
  // checkpoint is given up. For the last save, this is not a failed try: it saves again once the
  // server is back.
  const std::string lost =
      absl::StrCat("the server of shard ", shard, " was away while the checkpoint was written");
  GiveUp(absl::UnavailableError(lost));
  outbox_.RaiseAlarm(lost, now);
}

void ClusterSaves::GiveUp(const absl::Status& reason) {
  const std::string directory = state_.checkpoints.GiveUp(reason);
  if (!directory.empty()) outbox_.Do(DiscardTask{directory});
}

absl::Status ClusterSaves::OnShardSaved(int shard, const shards::ShardSaved& saved,
                                        absl::Time now) {
  const std::string& directory = saved.directory;
  // After the checkpoint was given up, the shard has still written files into its folder. They are
  // removed, because they would take disk space from later tries.
  if (state_.checkpoints.tracker().IsGivenUp(directory)) outbox_.Do(DiscardTask{directory});
  if (!state_.shards.Counts(shard, saved.server_incarnation)) return absl::OkStatus();
  auto record = state_.checkpoints.OnSaved(shard, directory, saved.manifest_part, Facts());
  if (!record.has_value()) return absl::OkStatus();
  if (!record->ok()) return OnFailed(directory, record->status(), now);
  (*record)->job = state_.model.job();
  (*record)->layout = *state_.model.layout();
  checkpoints::JournalManifest& journal = (*record)->journal;
  journal.journal_id = state_.journal_id;
  for (const shards::ShardFleet::Server& server : state_.shards.servers()) {
    journal.shard_records.push_back(server.journal_end);
  }
  outbox_.Do(**std::move(record));
  return absl::OkStatus();
}

absl::Status ClusterSaves::OnPublished(
    absl::string_view directory, const absl::StatusOr<checkpoints::PublishedCheckpoint>& published,
    absl::Time now) {
  // Copied, because `directory` may point into an object that checkpoints.OnPublished() destroys.
  const std::string temporary(directory);
  const checkpoints::PublishedVerdict verdict =
      state_.checkpoints.OnPublished(temporary, published, now);
  if (verdict.kind == checkpoints::PublishedVerdict::Kind::kOther) return absl::OkStatus();
  if (verdict.kind == checkpoints::PublishedVerdict::Kind::kFailed) {
    return OnFailed(
        temporary,
        absl::Status(published.status().code(),
                     absl::StrCat("checkpoint ", temporary, ": ", published.status().message())),
        now);
  }
  outbox_.SetAlarm(kCheckpointSubject, absl::OkStatus(), now);
  outbox_.SetAlarm(
      kFolderSubject,
      published->alarm.empty() ? absl::OkStatus() : absl::FailedPreconditionError(published->alarm),
      now);
  outbox_.SetAlarm(kStopSubject, OutlastsStop(verdict, state_.config.stop_timeout), now);
  outbox_.SetAlarm(kIntervalSubject, AreFarApart(verdict, state_.config.checkpoint_schedule), now);
  outbox_.Tell(PublishedText(*published, verdict));
  const absl::Duration usual_round = state_.rounds.progress().usual_round();
  const double round_bytes = static_cast<double>(state_.membership.table().Members().size()) *
                             static_cast<double>(state_.model.layout()->num_elements()) *
                             sizeof(float);
  const auto journal = state_.checkpoints.JournalToSuggest(round_bytes, usual_round);
  if (journal.has_value()) outbox_.Tell(JournalSuggestion(*journal, usual_round));
  state_.shards.OnPublished({temporary, published->path, published->round});
  outbox_.Command(*state_.shards.published());
  outbox_.Touch();
  return absl::OkStatus();
}

absl::Status ClusterSaves::OnFailed(absl::string_view directory, const absl::Status& error,
                                    absl::Time now) {
  outbox_.Do(DiscardTask{std::string(directory)});
  const checkpoints::FailedVerdict verdict = state_.checkpoints.OnFailed(directory, error, now);
  if (verdict == checkpoints::FailedVerdict::kOvertaken) {
    outbox_.Tell(absl::StrCat("checkpoint given up directory=", directory,
                              ": a round that was open at its beginning is complete now, and a new "
                              "checkpoint with that round is written"));
    return absl::OkStatus();
  }
  // The alarm's text is the same for every round and try, so that a full disk causes one alarm and
  // not one per try.
  const size_t folder_end = directory.rfind('/');
  const std::string any = absl::StrCat(directory.substr(0, folder_end), "/round-N");
  outbox_.SetAlarm(
      kCheckpointSubject,
      absl::Status(error.code(), absl::StrReplaceAll(error.message(), {{directory, any}})), now);
  if (verdict != checkpoints::FailedVerdict::kLastTry) return absl::OkStatus();
  absl::Status failure = EndLast(error);
  outbox_.RaiseAlarm(
      absl::StrCat("NOT SAVED: ", state_.checkpoints.last_save().outcome()->status().message()),
      now);
  return failure;
}

absl::Status ClusterSaves::BeginLast(absl::string_view reason, absl::Duration patience,
                                     absl::Time now) {
  if (state_.ending.should_exit() && state_.checkpoints.last_save().outcome().has_value()) {
    return absl::OkStatus();
  }
  const bool is_first = state_.ending.AwaitSave(reason, patience, now);
  if (!is_first && state_.checkpoints.last_save().is_under_way()) return absl::OkStatus();
  outbox_.Touch();
  if (state_.checkpoints.AwaitLast(Facts(), now)) return absl::OkStatus();
  const std::string reason_not = WaitingFor(state_, now);
  return EndLast(state_.is_ready() ? absl::DataLossError(reason_not)
                                   : absl::FailedPreconditionError(reason_not));
}

absl::Status ClusterSaves::EndLast(const absl::Status& error) {
  outbox_.Touch();
  const std::string unsaved = UnsavedText(state_);
  const checkpoints::LastSaveEnd end = state_.checkpoints.EndLast(
      Facts(), absl::Status(error.code(),
                            absl::StrCat(unsaved, unsaved.empty() ? "" : ": ", error.message())));
  if (end == checkpoints::LastSaveEnd::kOverBefore) return absl::OkStatus();
  if (end == checkpoints::LastSaveEnd::kHeldUnmarked) {
    outbox_.Do(MarkTask{state_.checkpoints.complete(), /*is_complete=*/true});
  }
  if (state_.ending.failure_once_saved().ok()) return absl::OkStatus();
  const checkpoints::LastSave::Outcome& outcome = *state_.checkpoints.last_save().outcome();
  return absl::Status(
      state_.ending.failure_once_saved().code(),
      absl::StrCat(state_.ending.failure_once_saved().message(), "; ",
                   outcome.ok() ? absl::StrCat("all weights are saved in ", outcome->path)
                                : std::string(outcome.status().message())));
}

absl::StatusOr<bool> ClusterSaves::AdvanceLast(absl::Time now) {
  using Kind = checkpoints::LastSaveVerdict::Kind;
  const checkpoints::CheckpointFacts facts = Facts();
  const checkpoints::LastSaveVerdict verdict = state_.checkpoints.AdvanceLast(facts, now);
  switch (verdict.kind) {
    case Kind::kNothing:
      break;
    case Kind::kServed:
      outbox_.Touch();
      return true;
    case Kind::kJobFailed:
      RETURN_IF_ERROR(EndLast(state_.ending.failure()));
      return true;
    case Kind::kNothingToSave:
      RETURN_IF_ERROR(EndLast(absl::FailedPreconditionError(NothingToSaveText(state_, now))));
      return true;
    case Kind::kBegin:
      Begin({.ledger = facts.ledger, .place = verdict.place}, now);
      return true;
  }
  return false;
}

absl::Status ClusterSaves::OnStillAway(int shard, absl::Time now) {
  // If no process waits to exit, the last save can wait until the server is back.
  if (!state_.ending.GivesUpServers(now) || !state_.checkpoints.last_save().is_under_way()) {
    return absl::OkStatus();
  }
  return EndLast(absl::DataLossError(absl::StrCat(
      "the last checkpoint is not written, because the server of shard ", shard,
      " did not answer within half of --stop_timeout. The other half is for writing")));
}

bool ClusterSaves::IsHeldUp(absl::Time now) const {
  return state_.ending.IsHeldUp(state_.checkpoints.last_save().is_under_way(),
                                state_.is_shard_away(), state_.shards.back_at(), now);
}

std::string ClusterSaves::HeldUpReason() const {
  if (state_.ending.is_work_held()) {
    return absl::StrCat("held up the last checkpoint: ", state_.ending.hold_reason());
  }
  return absl::StrCat("has not delivered its round within --stop_timeout=",
                      absl::FormatDuration(state_.config.stop_timeout),
                      ", and the job is stopped: ", *state_.ending.stop_reason());
}

bool ClusterSaves::ForgetAsker(absl::string_view reason) {
  if (!state_.ending.ForgetAsker(reason)) return false;
  state_.checkpoints.ForgetLast();
  outbox_.Touch();
  return true;
}

void ClusterSaves::Restart(const checkpoints::CoordinatorState& on_disk, absl::Time now) {
  state_.ending.Restart();
  state_.checkpoints.ForgetLast();
  const auto* checkpoint = std::get_if<shards::CheckpointSource>(&state_.model.source());
  if (checkpoint == nullptr) return state_.checkpoints.ForgetNewest();
  state_.checkpoints.Restart({.path = checkpoint->directory,
                              .round = state_.rounds.ledger().next_round(),
                              .bytes = checkpoint->bytes},
                             on_disk.ledger, on_disk.orders, now - checkpoint->age);
}

void ClusterSaves::OnShardBack(absl::Time now) {
  if (state_.is_shard_away() || !state_.is_ready()) return;
  if (state_.checkpoints.tracker().HasOther(state_.orders(),
                                            state_.faults.memory().learning_rate_scale)) {
    OnOrdersChanged(now);
  }
}

void ClusterSaves::OnOrdersChanged(absl::Time now) {
  if (state_.saves()) state_.checkpoints.Request(now);
}

}  // namespace lodestar::coordinator
