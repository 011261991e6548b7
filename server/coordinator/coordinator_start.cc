// SPDX-License-Identifier: Apache-2.0

// How a coordinator begins: anew, or with the memory in its journal. The memory is used only after
// it was compared with what shards and checkpoints know.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/params/shard_plan.h"
#include "common/runtime/status_macros.h"
#include "server/coordinator/admission.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/shards/journal_comparison.h"
#include "server/coordinator/verdict_words.h"

namespace lodestar::coordinator {

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Create(Config config, absl::Time now) {
  RETURN_IF_ERROR(job::ValidateJobSpec(config.job));
  if (config.num_shards < 1 || config.num_shards > params::kMaxServers) {
    return absl::InvalidArgumentError(absl::StrCat("--shard=0/", config.num_shards,
                                                   ": the number of shards must be 1 to ",
                                                   params::kMaxServers));
  }
  if (config.lease < absl::Milliseconds(100)) {
    return absl::InvalidArgumentError(absl::StrCat("--lease=", absl::FormatDuration(config.lease),
                                                   " is too short; at least 100ms"));
  }
  ASSIGN_OR_RETURN(model::JobModel model,
                   model::JobModel::Create({.job = config.job,
                                            .given = config.given,
                                            .open_settings = config.open_settings,
                                            .divergence = config.divergence,
                                            .room = {.num_shards = config.num_shards,
                                                     .memory = config.memory,
                                                     .staging_bytes = config.staging_bytes},
                                            .caller_patience = kCallerPatience}));
  return std::unique_ptr<Coordinator>(new Coordinator(std::move(config), std::move(model), now));
}

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Resume(Config config,
                                                                 CoordinatorMemory memory,
                                                                 absl::Time now) {
  const job::JobSpec job =
      model::JobOf(memory.model, config.job, config.given, config.open_settings);
  RETURN_IF_ERROR(CheckSameJob(memory, job, config.num_shards));
  ASSIGN_OR_RETURN(std::unique_ptr<Coordinator> coordinator, Create(std::move(config), now));
  RETURN_IF_ERROR(coordinator->GoOnFrom(std::move(memory), now));
  return coordinator;
}

absl::Status Coordinator::GoOnFrom(CoordinatorMemory memory, absl::Time now) {
  state_.comparison.is_resumed = true;
  state_.comparison.unfinished = memory.checkpoints.tracker.active_directory;
  RETURN_IF_ERROR(Recall(std::move(memory), now, state_));
  // If the job was in a later phase, Advance() reaches that phase again from kRunning.
  const bool is_evaluating =
      !state_.rounds.open().empty() && state_.rounds.open().begin()->second.is_evaluation();
  state_.phase = is_evaluating ? CoordinatorPhase::kEvaluating : CoordinatorPhase::kRunning;
  outbox_.Touch();
  return absl::OkStatus();
}

void Coordinator::CompareOnceAllAttached(absl::Time now) {
  const bool is_known_loss = state_.comparison.loss.has_value();
  if (!state_.is_comparing() || is_known_loss || state_.phase == CoordinatorPhase::kDone ||
      state_.phase == CoordinatorPhase::kFailed) {
    return;
  }
  if (!state_.shards.all_attached() || state_.is_shard_away()) return;
  const shards::JournalFacts& facts = state_.config.journal;
  std::optional<Round> next_round;
  if (state_.comparison.is_resumed) next_round = state_.rounds.ledger().next_round();
  const std::optional<shards::JournalLoss> loss = state_.shards.Compare(facts, next_round);
  if (!loss.has_value()) return EndComparison(now);
  const shards::LossAcceptance acceptance = shards::AcceptanceOf(facts, *loss);
  if (acceptance == shards::LossAcceptance::kAccepted) return AcceptLoss(*loss, now);
  state_.comparison.loss = loss;
  if (acceptance == shards::LossAcceptance::kOfAnotherRound) {
    state_.comparison.refusal = AcceptedOtherLoss(facts, *loss);
  }
  outbox_.RaiseAlarm(JournalLossText(facts, *loss), now);
  outbox_.Touch();
  if (!state_.ending.is_stopping()) return;
  EndWithoutSaving(now);
  Advance(now);
}

void Coordinator::AcceptLoss(const shards::JournalLoss& loss, absl::Time now) {
  state_.comparison.is_over = true;
  state_.comparison.is_accepted = true;
  // The journal gets a new ID. Under the old ID, new records would have the same numbers as the
  // lost records.
  if (state_.journal_id != 0) state_.journal_id = state_.config.journal.new_journal_id;
  const std::string why =
      state_.config.journal.is_promoted
          ? std::string("a replica that lacks the later rounds has taken the server's place")
          : absl::StrCat("--accept_loss=", loss.round.value(), " was given");
  state_.faults.SetBack({loss.round.value(), why});
  outbox_.RaiseAlarm(absl::StrCat("all servers go back to the newest checkpoint, because ", why,
                                  ": ", JournalLossReason(state_.config.journal, loss)),
                     now);
  // This process may know less than the checkpoint. After ForgetIncarnation(), Restore() takes
  // everything from the checkpoint, as in a new process.
  state_.shards.ForgetIncarnation();
  state_.rounds.DropOpen();
  BeginRestoring({.accepts_loss = true});
}

void Coordinator::Command(shards::ShardCommand command) {
  if (!state_.is_comparing()) outbox_.Command(std::move(command));
}

absl::Status Coordinator::RefuseAcknowledged(const messages::RegisterCall& call, absl::Time now) {
  const messages::AcknowledgedReport& report = *call.process.acknowledged;
  const membership::WorkerRecord* const record = state_.membership.table().FindByName(call.name);
  if (record != nullptr && record->is_alive()) {
    DropWorker(record->id, "it has contributed to a round that these servers do not have", now);
  }
  outbox_.RaiseAlarm(MemberAlarmText(state_, state_.membership.CountLacking(call)), now);
  return LacksReportStatus(state_, report.round);
}

void Coordinator::BeginRestoring(ChooseRestoreTask task) {
  Enter(CoordinatorPhase::kRestoring);
  outbox_.Do(std::move(task));
}

void Coordinator::EndComparison(absl::Time now) {
  StartComparison& comparison = state_.comparison;
  comparison.is_over = true;
  if (const std::string& damage = state_.config.journal.damage; !damage.empty()) {
    outbox_.RaiseAlarm(
        absl::StrCat(damage,
                     ". The server does not continue from it, and keeps its files as *.damaged"),
        now);
  }
  if (const auto& accepted = state_.config.journal.accepted_loss; accepted.has_value()) {
    outbox_.Tell(absl::StrCat("--accept_loss=", accepted->value(),
                              " has no effect, because nothing is lost; leave the flag out"));
  }
  if (!comparison.is_resumed) return BeginRestoring({});
  // A checkpoint that was under way when the previous process ended will not be completed.
  if (!comparison.unfinished.empty()) {
    outbox_.Do(DiscardTask{comparison.unfinished});
    state_.checkpoints.Request(now);
  }
  if (const auto& newest = state_.config.journal.newest;
      newest.has_value() && newest->journal.is_complete) {
    state_.checkpoints.SetComplete(newest->path);
  }
  state_.membership.RenewAll(now);
  const Round next_round = state_.rounds.uses_rosters() ? state_.rounds.committed_round()
                                                        : state_.rounds.ledger().next_round();
  outbox_.Tell(absl::StrCat("the server was restarted, and continues from its journal at round ",
                            next_round.value()));
  outbox_.Announce(
      RestoredPoint{next_round,
                    state_.rounds.ledger().trained_samples(),
                    state_.rounds.ledger().state().final_evaluation_round ==
                        state_.rounds.ledger().next_round().value(),
                    state_.rounds.uses_rosters(),
                    /*is_from_journal=*/true,
                    {state_.rounds.unrecorded().begin(), state_.rounds.unrecorded().end()},
                    state_.rounds.progress().loss()});
  outbox_.Announce(DecidedJob{state_.model.job()});
  outbox_.Touch();
  if (!state_.shards.untold_losses().empty()) {
    for (const auto& [shard, loss] : state_.shards.untold_losses()) {
      GoBackWithout(shard, ShardLossText(state_, loss), now);
    }
    if (state_.phase == CoordinatorPhase::kAwaitingShards) BeginRestoring({});
    return;
  }
  for (int shard = 0; shard < state_.config.num_shards; ++shard) RepeatCommands(shard);
  saves_.OnShardBack(now);
  Advance(now);
}

bool Coordinator::AwaitsReopening() {
  const checkpoints::Reopening reopening = state_.checkpoints.AwaitReopening(state_.journal_id);
  if (reopening == checkpoints::Reopening::kBegin) {
    outbox_.Do(MarkTask{state_.checkpoints.complete(), /*is_complete=*/false});
  }
  return reopening != checkpoints::Reopening::kNone;
}

void Coordinator::OnCheckpointMarked(bool is_complete, const absl::Status& status, absl::Time now) {
  // If the mark could not be set, nothing has to be done. The only effect is an alarm if a later
  // start does not have the journal.
  if (is_complete) return;
  state_.checkpoints.OnReopened(status.ok(), now);
  outbox_.SetAlarm(
      "mark of the newest checkpoint",
      status.ok()
          ? status
          : absl::Status(status.code(),
                         absl::StrCat("no work is handed out, because the server cannot change a "
                                      "file in the newest checkpoint: ",
                                      status.message(),
                                      ". Check the disk of --checkpoint_dir; the server tries "
                                      "again")),
      now);
  if (status.ok()) Advance(now);
}

}  // namespace lodestar::coordinator
