// Checkpoints and the end of the job.
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/coordinator/coordinator.h"

namespace lodestar {

absl::StatusOr<uint64_t> Coordinator::RequestCheckpoint(absl::Time now) {
  if (!checkpoints_.is_enabled()) {
    return absl::FailedPreconditionError(
        "nowhere to save: start the servers with --checkpoint_dir");
  }
  if (absl::Status ready = CheckReady(now); !ready.ok() || awaits_supply()) {
    return absl::FailedPreconditionError(absl::StrCat("nothing to save yet: ", WaitingFor(now)));
  }
  const uint64_t ticket = checkpoints_.Request();
  Advance(now);
  return ticket;
}

std::optional<absl::StatusOr<PublishedCheckpoint>> Coordinator::CheckpointOutcome(
    uint64_t ticket) const {
  return checkpoints_.OutcomeOf(ticket);
}

void Coordinator::RequestStop(absl::string_view reason, absl::Time now) {
  if (is_stopping()) return;
  stop_reason_ = std::string(reason);
  deps_.observer->OnEvent(absl::StrCat("stop requested: ", reason));
  Touch();
  if (!CheckReady(now).ok()) Enter(CoordinatorPhase::kDone);
  Advance(now);
}

void Coordinator::HoldWork() {
  is_work_held_ = true;
  Touch();
}

void Coordinator::OnShardSaved(int shard, uint64_t server_incarnation, absl::string_view directory,
                               const absl::StatusOr<std::string>& manifest_part, absl::Time now) {
  if (server_incarnation != server_incarnation_ || !shards_.Has(shard)) return;
  auto record = checkpoints_.OnSaved(shard, directory, manifest_part);
  if (!record.has_value()) return;
  if (record->ok()) {
    deps_.checkpoints->Publish(**std::move(record));
    return;
  }
  deps_.checkpoints->Discard(directory);
  RaiseAlarm(record->status().message(), now);
  Touch();
  Advance(now);
}

void Coordinator::OnCheckpointPublished(absl::string_view directory,
                                        const absl::StatusOr<PublishedCheckpoint>& published,
                                        absl::Time now) {
  // Copied: it may be a view of what Finish() ends.
  const std::string temporary(directory);
  if (!checkpoints_.Finish(temporary, published, now)) return;
  if (published.ok()) {
    deps_.observer->OnEvent(absl::StrCat("checkpoint published path=", published->path, " round=",
                                         published->round.value(), " bytes=", published->bytes));
  } else {
    deps_.checkpoints->Discard(temporary);
    RaiseAlarm(absl::StrCat("checkpoint ", temporary, ": ", published.status().message()), now);
  }
  Touch();
  Advance(now);
}

// Between rounds: when one is scheduled for the coming round or was asked for.
void Coordinator::MaybeCheckpoint(absl::Time now) {
  if (!checkpoints_.is_enabled()) return;
  const int64_t round = ledger_.next_round().value();
  const bool is_scheduled = config_.checkpoint_every > 0 && round > 0 &&
                            round % config_.checkpoint_every == 0 &&
                            round != last_scheduled_checkpoint_;
  if (!is_scheduled && !checkpoints_.is_requested()) return;
  if (is_scheduled) last_scheduled_checkpoint_ = round;
  if (checkpoints_.is_active()) {
    if (is_scheduled) {
      RaiseAlarm(
          "a checkpoint was left out because the one before it was still being written; "
          "raise --checkpoint_every",
          now);
    }
    return;
  }
  if (checkpoints_.HoldsLast(ledger_.state())) {
    if (checkpoints_.is_requested()) checkpoints_.ServeWithLast();
    Touch();
    return;
  }
  StartCheckpoint(now);
}

void Coordinator::StartCheckpoint(absl::Time now) {
  const std::string directory = checkpoints_.Begin(ledger_.next_round(), ExportState(), now);
  const Version version =
      policy_->uses_rosters() ? Version(ledger_.next_round().value()) : Version(-1);
  deps_.fleet->Save(version, directory);
  deps_.observer->OnEvent(absl::StrCat("checkpoint begun directory=", directory));
}

bool Coordinator::AdvanceSaving(absl::Time now) {
  if (checkpoints_.is_active()) return false;
  if (checkpoints_.is_enabled() && !awaits_supply() && !has_tried_final_save_ &&
      !checkpoints_.HoldsLast(ledger_.state())) {
    has_tried_final_save_ = true;
    StartCheckpoint(now);
    return true;
  }
  Enter(CoordinatorPhase::kDone);
  return true;
}

bool Coordinator::AdvanceDone(absl::Time now) {
  if (checkpoints_.is_requested() && !checkpoints_.is_active()) {
    if (checkpoints_.HoldsLast(ledger_.state())) {
      checkpoints_.ServeWithLast();
      Touch();
    } else {
      StartCheckpoint(now);
    }
    return true;
  }
  if (should_exit_ || checkpoints_.is_active()) return false;
  if (!is_stopping() && !config_.exit_when_done) return false;
  for (const auto& [id, record] : membership_.workers()) {
    if (record.is_alive()) return false;
  }
  should_exit_ = true;
  deps_.fleet->Stop();
  deps_.observer->OnEvent("the job is over and the workers have left: the servers exit");
  Touch();
  return true;
}

CoordinatorState Coordinator::ExportState() const {
  return {server_incarnation_, ledger_.state(), membership_.Export()};
}

}  // namespace lodestar
