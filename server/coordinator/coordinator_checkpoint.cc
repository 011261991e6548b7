// Checkpoints and the end of the job.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/coordinator/coordinator.h"

namespace lodestar {

absl::StatusOr<uint64_t> Coordinator::RequestCheckpoint(absl::Time now) {
  if (!saves()) {
    return absl::FailedPreconditionError(
        "nowhere to save: start the servers with --checkpoint_dir");
  }
  if (phase_ == CoordinatorPhase::kDone && !failure_.ok()) return failure_;
  if (absl::Status ready = CheckReady(now); !ready.ok() || supply_.is_awaited()) {
    return absl::FailedPreconditionError(absl::StrCat("nothing to save yet: ", WaitingFor(now)));
  }
  const uint64_t ticket = checkpoints_.Request();
  Advance(now);
  return ticket;
}

void Coordinator::RequestStop(absl::string_view reason, absl::Time now) {
  // What has failed ends by itself.
  if (is_stopping() || phase_ == CoordinatorPhase::kFailed) return;
  stop_reason_ = std::string(reason);
  Tell(absl::StrCat("stop requested: ", reason));
  Touch();
  if (!is_ready()) {
    EndLastSave(absl::FailedPreconditionError(WaitingFor(now)));
    quota_.OnReady(now);
    Enter(CoordinatorPhase::kDone);
  } else if (phase_ == CoordinatorPhase::kDone) {
    last_save_.Begin(/*gives_up=*/true, now);
  }
  Advance(now);
}

void Coordinator::BeginLastSave(absl::string_view reason, absl::Duration patience, absl::Time now) {
  if (should_exit_) return;
  hold_reason_ = std::string(reason);
  drop_missing_at_ = std::min(drop_missing_at_, now + patience / 2);
  const absl::Status ready = CheckReady(now);
  // A server that has just gone away may be back in time, if anything is missing at all.
  const bool may_save =
      shards_.all_serving() || (told_away_.empty() && !checkpoints_.HoldsLast(ledger_.state()));
  if (ready.ok() && may_save) {
    last_save_.Begin(/*gives_up=*/true, now);
  } else if (!last_save_.outcome().has_value()) {
    const std::string reason_not = WaitingFor(now);
    EndLastSave(ready.ok() ? absl::DataLossError(reason_not)
                           : absl::FailedPreconditionError(reason_not));
  }
  Touch();
  Advance(now);
}

// There is no try (any more); what is on disk already is good enough if nothing came after it.
void Coordinator::EndLastSave(const absl::Status& error) {
  Touch();
  if (last_save_.outcome().has_value() && last_save_.outcome()->ok()) return;
  if (checkpoints_.HoldsLast(ledger_.state())) {
    last_save_.End(*checkpoints_.last());
  } else {
    const std::string unsaved = Unsaved();
    last_save_.End(absl::Status(
        error.code(), absl::StrCat(unsaved, unsaved.empty() ? "" : ": ", error.message())));
  }
  if (shard_failure_.ok()) return;
  const LastSave::Outcome& outcome = *last_save_.outcome();
  Fail(absl::Status(shard_failure_.code(),
                    absl::StrCat(shard_failure_.message(), "; ",
                                 outcome.ok() ? absl::StrCat("all is saved in ", outcome->path)
                                              : std::string(outcome.status().message()))));
}

// A worker that holds up the last checkpoint goes, and with it its part of the round; the round is
// closed without it.
void Coordinator::DropMissing(absl::Time now) {
  const std::string reason = absl::StrCat("held up the last checkpoint: ", hold_reason_);
  std::vector<EndedLife> ended;
  for (const auto& [number, round] : open_) {
    for (WorkerId worker : round.Missing()) {
      const WorkerRecord* record = membership_.Find(worker);
      auto life = membership_.Drop(worker, record->incarnation, reason, now);
      if (life.ok()) ended.push_back(*std::move(life));
    }
  }
  EndLives(ended, now);
}

void Coordinator::OnShardSaved(int shard, uint64_t server_incarnation, absl::string_view directory,
                               const absl::StatusOr<std::string>& manifest_part, absl::Time now) {
  // What a shard has written since then would stay there, and take the room of later tries.
  if (checkpoints_.IsGivenUp(directory)) Do(DiscardTask{std::string(directory)});
  if (server_incarnation != server_incarnation_ || !shards_.Has(shard)) return;
  auto record = checkpoints_.OnSaved(shard, directory, manifest_part);
  if (!record.has_value()) return;
  if (record->ok()) {
    (*record)->layout = *layout_;
    Do(**std::move(record));
  } else {
    OnCheckpointFailed(directory, record->status(), now);
  }
}

void Coordinator::OnCheckpointPublished(absl::string_view directory,
                                        const absl::StatusOr<PublishedCheckpoint>& published,
                                        absl::Time now) {
  // Copied: it may be a view of what Finish() ends.
  const std::string temporary(directory);
  if (!checkpoints_.Finish(temporary, published, now)) return;
  if (!published.ok()) {
    return OnCheckpointFailed(
        temporary,
        absl::Status(published.status().code(),
                     absl::StrCat("checkpoint ", temporary, ": ", published.status().message())),
        now);
  }
  const absl::Duration write_time = checkpoints_.Snapshot(now)->write_time;
  schedule_.OnWritten(write_time);
  if (!published->alarm.empty()) RaiseAlarm(published->alarm, now);
  Tell(absl::StrCat("checkpoint published path=", published->path,
                    " round=", published->round.value(), " bytes=", published->bytes,
                    " took=", absl::FormatDuration(absl::Trunc(write_time, absl::Milliseconds(1))),
                    schedule_.is_stretched()
                        ? absl::StrCat(" next_in=", absl::FormatDuration(absl::Trunc(
                                                        schedule_.interval(), absl::Seconds(1))))
                        : ""));
  Touch();
  Advance(now);
}

void Coordinator::OnCheckpointFailed(absl::string_view directory, const absl::Status& error,
                                     absl::Time now) {
  Do(DiscardTask{std::string(directory)});
  // The same words for every round and try, so that a full disk is one alarm and not one per try.
  const size_t folder_end = directory.rfind('/');
  const std::string any = absl::StrCat(directory.substr(0, folder_end), "/round-*");
  RaiseAlarm(absl::StrReplaceAll(error.message(), {{directory, any}}), now);
  last_save_.OnFailed(error, now);
  if (last_save_.outcome().has_value()) {
    EndLastSave(error);
    RaiseAlarm(absl::StrCat("NOT SAVED: ", last_save_.outcome()->status().message()), now);
  }
  Touch();
  Advance(now);
}

// Between rounds: when one is scheduled for the coming round or was asked for.
void Coordinator::MaybeCheckpoint(absl::Time now) {
  if (!saves()) return;
  const Round round = ledger_.next_round();
  const bool is_due_by_round = schedule_.IsDueByRound(round);
  if (checkpoints_.is_active()) {
    if (!is_due_by_round) return;
    schedule_.OnBegun(round, now);
    RaiseAlarm(
        "a checkpoint was left out because the one before it was still being written; "
        "raise --checkpoint_every",
        now);
    return;
  }
  if (!is_due_by_round && !schedule_.IsDueByTime(now) && !checkpoints_.is_requested()) return;
  if (ServeRequestsWithLast()) return;
  schedule_.OnBegun(round, now);
  if (!checkpoints_.HoldsLast(ledger_.state())) StartCheckpoint(config_.checkpoint_dir, now);
}

// Whether what is on disk already serves those who asked for a checkpoint.
bool Coordinator::ServeRequestsWithLast() {
  if (!checkpoints_.is_requested() || !checkpoints_.HoldsLast(ledger_.state())) return false;
  checkpoints_.ServeWithLast();
  Touch();
  return true;
}

void Coordinator::StartCheckpoint(absl::string_view folder, absl::Time now) {
  const CoordinatorState state{server_incarnation_, ledger_.state(), membership_.Export(),
                               progress_.Export()};
  const std::string directory = checkpoints_.Begin(folder, ledger_.next_round(), state, now);
  SaveCommand command = {.round = std::nullopt, .directory = directory};
  if (policy_->uses_rosters()) command.round = ledger_.next_round();
  Command(std::move(command));
  Tell(absl::StrCat("checkpoint begun directory=", directory));
}

// Carries out the tries. Returns whether anything has changed.
bool Coordinator::AdvanceLastSave(absl::Time now) {
  if (checkpoints_.is_active()) return false;
  if (ServeRequestsWithLast()) return true;
  if (!last_save_.is_begun() || last_save_.outcome().has_value()) return false;
  if (!failure_.ok()) {
    EndLastSave(failure_);
    return true;
  }
  if (!saves() || supply_.is_awaited() || checkpoints_.HoldsLast(ledger_.state())) {
    EndLastSave(absl::FailedPreconditionError(saves() ? WaitingFor(now) : "no --checkpoint_dir"));
    return true;
  }
  if (is_shard_away()) return false;
  const std::optional<LastSave::Place> place = last_save_.Due(now);
  if (!place.has_value()) return false;
  StartCheckpoint(
      *place == LastSave::Place::kFallback ? config_.fallback_dir : config_.checkpoint_dir, now);
  return true;
}

bool Coordinator::AdvanceSaving(absl::Time now) {
  if (!last_save_.is_begun()) {
    last_save_.Begin(/*gives_up=*/is_stopping() || config_.exit_when_done, now);
  }
  if (AdvanceLastSave(now)) return true;
  if (checkpoints_.is_active()) return false;
  // Workers need not wait for the tries that follow.
  Enter(CoordinatorPhase::kDone);
  return true;
}

bool Coordinator::AdvanceDone(absl::Time now) {
  if (AdvanceLastSave(now)) return true;
  if (should_exit_ || checkpoints_.is_active()) return false;
  if (checkpoints_.is_requested()) {
    if (is_shard_away()) return false;
    StartCheckpoint(config_.checkpoint_dir, now);
    return true;
  }
  if (!is_stopping() && !config_.exit_when_done) return false;
  if (!last_save_.outcome().has_value()) return false;
  if (!Present().empty() || !Returning(now).empty()) return false;
  if (awaits_strangers(now)) return false;
  // A server that is away for long is not waited for to be told.
  if (is_shard_away() && told_away_.empty()) return false;
  Exit("the job is over");
  return true;
}

bool Coordinator::AdvanceFailed() {
  if (should_exit_ || !Present().empty()) return false;
  Exit("the job has failed");
  return true;
}

void Coordinator::Exit(absl::string_view why) {
  should_exit_ = true;
  Command(StopCommand{std::string(failure_.message())});
  Tell(absl::StrCat(why, " and the workers have left: the servers exit"));
  Touch();
}

}  // namespace lodestar
