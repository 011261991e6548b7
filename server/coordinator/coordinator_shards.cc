// Shards: attaching, losing, restoring and loading.
#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/bucket_plan.h"
#include "common/shard_plan.h"
#include "common/status_macros.h"
#include "server/coordinator/coordinator.h"

namespace lodestar {
namespace {

std::string LostWhileSaving(int shard) {
  return absl::StrCat("the server of shard ", shard, " was lost while the checkpoint was written");
}

}  // namespace

absl::Status Coordinator::OnShardAttached(int shard, int num_shards, uint64_t instance_id,
                                          uint64_t memory_of, absl::string_view address,
                                          absl::Time now) {
  RETURN_IF_ERROR(shards_.CheckFits(shard, num_shards));
  const bool is_known = shards_.IsHeldBy(shard, instance_id);
  if (is_known && memory_of == server_incarnation_ && has_memory()) {
    Tell(absl::StrCat("shard connected again shard=", shard, " address=", address));
    shards_.Reconnect(shard, address, now);
    RepeatCommands(shard);
    OnShardBack(shard, now);
    return absl::OkStatus();
  }
  if (is_known || shards_.entries()[shard].is_away()) LoseMemory(shard, now);
  RETURN_IF_ERROR(shards_.Attach(shard, instance_id, address, now));
  Tell(absl::StrCat("shard attached shard=", shard, " address=", address));
  if (phase_ == CoordinatorPhase::kAwaitingShards && shards_.all_attached()) {
    Enter(CoordinatorPhase::kRestoring);
    Do(ChooseRestoreTask{});
  }
  return absl::OkStatus();
}

bool Coordinator::has_memory() const {
  switch (phase_) {
    case CoordinatorPhase::kLoading:
    case CoordinatorPhase::kRunning:
    case CoordinatorPhase::kEvaluating:
    case CoordinatorPhase::kSaving:
      return true;
    case CoordinatorPhase::kDone:
      return map_ != nullptr;
    default:
      return false;
  }
}

void Coordinator::RepeatCommands(int shard) {
  const auto repeat = [&](ShardCommand command) {
    effects_.emplace_back(RepeatedCommand{shard, std::move(command)});
  };
  if (!supply_.is_awaited()) repeat(Members());
  for (const auto& [id, record] : membership_.workers()) {
    if (!record.is_alive()) repeat(DropCommand{id, record.incarnation, "its life is over"});
  }
  for (const auto& [number, round] : open_) {
    if (policy_->uses_rosters() && !round.is_evaluation()) repeat(OpenRoundCommand{round.plan()});
  }
  for (const auto& [round, total] : norms_.totals()) repeat(NormTotalCommand{round, total});
  if (should_exit_) repeat(StopCommand{std::string(failure_.message())});
}

void Coordinator::OnShardDisconnected(int shard, uint64_t instance_id, absl::Time now) {
  if (should_exit_ || !shards_.IsHeldBy(shard, instance_id)) return;
  if (!has_memory()) return LoseMemory(shard, now);
  if (shards_.Disconnect(shard, now)) OnShardAway(shard, now);
}

void Coordinator::OnShardHeard(int shard, uint64_t instance_id, absl::Time now) {
  if (shards_.IsHeldBy(shard, instance_id) && shards_.Hear(shard, now)) OnShardBack(shard, now);
}

void Coordinator::OnShardAway(int shard, absl::Time now) {
  Touch();
  Tell(absl::StrCat("shard away shard=", shard));
  // What it has written, and the command, may be lost on their way.
  if (!checkpoints_.is_active()) return;
  const std::string directory(checkpoints_.active_directory());
  const absl::Status lost = absl::UnavailableError(
      absl::StrCat("the server of shard ", shard, " was away while the checkpoint was written"));
  checkpoints_.Abort(lost);
  OnCheckpointFailed(directory, lost, now);
}

void Coordinator::OnShardBack(int shard, absl::Time now) {
  Touch();
  servers_back_at_ = now;
  told_away_.erase(shard);
  Tell(absl::StrCat("shard back shard=", shard));
  Advance(now);
}

absl::Duration Coordinator::ShardPatience() const {
  // Several of the reports that servers send once a second.
  return std::max(config_.lease, absl::Seconds(5));
}

void Coordinator::LookForSilence(absl::Time now) {
  if (should_exit_ || !has_memory()) return;
  for (const int shard : shards_.MarkSilent(now - ShardPatience())) OnShardAway(shard, now);
  for (size_t shard = 0; shard < shards_.entries().size(); ++shard) {
    const ShardRegistry::Entry& entry = shards_.entries()[shard];
    if (!entry.is_away() || now - *entry.away_since < ShardPatience()) continue;
    if (last_save_.is_begun() && !last_save_.outcome().has_value()) {
      EndLastSave(absl::DataLossError(LostWhileSaving(static_cast<int>(shard))));
    }
    if (!told_away_.insert(static_cast<int>(shard)).second) continue;
    RaiseAlarm(absl::StrCat("the server of shard ", shard, " at ", entry.address,
                            " gives no sign of life, and training waits for it. If its process is "
                            "gone, start it again: then the cluster goes on from the newest "
                            "checkpoint"),
               now);
  }
}

void Coordinator::LoseMemory(int shard, absl::Time now) {
  shards_.Lose(shard, now);
  told_away_.erase(shard);
  Tell(absl::StrCat("shard lost shard=", shard));
  // A job that is over and has nothing to go back to stays over.
  const bool stays_done = phase_ == CoordinatorPhase::kDone && !saves();
  if (stays_done || phase_ == CoordinatorPhase::kFailed ||
      phase_ == CoordinatorPhase::kAwaitingShards) {
    return;
  }
  RaiseAlarm(absl::StrCat("the server of shard ", shard,
                          " has lost its memory; when it is back, the cluster goes on from the "
                          "newest checkpoint"),
             now);
  if (checkpoints_.is_active()) Do(DiscardTask{std::string(checkpoints_.active_directory())});
  const std::string lost = LostWhileSaving(shard);
  checkpoints_.Abort(absl::UnavailableError(lost));
  if (last_save_.is_begun()) EndLastSave(absl::DataLossError(lost));
  // The loss of the server that was failing anyway is the end.
  if (phase_ == CoordinatorPhase::kFailed) return Advance(now);
  Enter(CoordinatorPhase::kAwaitingShards);
}

void Coordinator::OnSquareSums(int shard, uint64_t server_incarnation, Round round,
                               std::vector<double> segment_sums, absl::Time) {
  if (server_incarnation != server_incarnation_ || !shards_.Has(shard)) return;
  if (!norms_.Add(round, shard, std::move(segment_sums))) return;
  Command(NormTotalCommand{round, norms_.TotalOf(round)});
}

void Coordinator::OnRestoreChosen(const absl::StatusOr<RestoreChoice>& choice, absl::Time now) {
  if (phase_ != CoordinatorPhase::kRestoring) return;
  const absl::Status restored = choice.ok() ? Restore(*choice, now) : choice.status();
  if (restored.ok()) return;
  Fail(restored);
  RaiseAlarm(failure_.message(), now);
  Advance(now);
}

absl::Status Coordinator::Restore(const RestoreChoice& choice, absl::Time now) {
  if (!choice.alarm.empty()) RaiseAlarm(choice.alarm, now);
  CoordinatorState state;
  state.membership = membership_.Export();
  Incarnation last_life = state.membership.last_incarnation;
  if (choice.state.has_value()) state = *choice.state;
  last_life = std::max(last_life, state.membership.last_incarnation);
  const bool is_client_model =
      std::holds_alternative<ClientModelSpec>(config_.job.model.architecture);
  if (choice.layout.has_value() && layout_.has_value() && !is_client_model) {
    RETURN_IF_ERROR(CheckSameLayout(*layout_, "the job", *choice.layout, "the weights on disk"));
  }
  if (choice.layout.has_value()) layout_ = choice.layout;
  const LedgerState on_disk = state.ledger;
  divergence_.Reconcile(state.ledger);
  server_incarnation_ = std::max({choice.server_incarnation, state.server_incarnation + 1,
                                  server_incarnation_ + 1, last_life.value() + 1});
  // Lives that a lost coordinator began after its last checkpoint are not known here; time-based
  // server incarnations lie above them.
  ASSIGN_OR_RETURN(membership_, MembershipTable::Restore(membership_.config(), state.membership,
                                                         Incarnation(server_incarnation_), now));
  ledger_ = WorkLedger(config_.job, state.ledger);
  progress_.Restore(state.progress);
  source_ = choice.source;
  desks_.clear();
  open_.clear();
  norms_.Clear();
  supply_.Begin(std::holds_alternative<ClientSource>(source_));
  evaluation_attempt_ = 0;
  last_save_ = LastSave(!config_.fallback_dir.empty());
  hold_reason_.clear();
  shard_failure_ = absl::OkStatus();
  drop_missing_at_ = absl::InfiniteFuture();
  if (const auto* checkpoint = std::get_if<CheckpointSource>(&source_)) {
    const bool is_fallback = !config_.fallback_dir.empty() &&
                             absl::StartsWith(checkpoint->directory, config_.fallback_dir + "/");
    // In the fallback it is no reason not to save where it belongs.
    checkpoints_.SetLast({checkpoint->directory, ledger_.next_round(), 0},
                         is_fallback ? LedgerState{.next_round = -1} : on_disk, now);
  } else {
    checkpoints_.ForgetLast();
  }
  resumed_ = choice.resumed;
  if (!choice.note.empty()) Tell(choice.note);
  if (ledger_.is_exhausted() && !ledger_.needs_final_evaluation()) {
    Tell(absl::StrCat("complete already at round ", ledger_.next_round().value(), " of ",
                      config_.job.schedule.total_rounds,
                      ": --rounds=M with a larger M goes on, --resume=never starts anew; ",
                      config_.exit_when_done
                          ? "ends, because of --exit_when_done"
                          : "serves the weights (psctl export) until psctl stop or Ctrl-C"));
  }
  const int64_t next_round = ledger_.next_round().value();
  effects_.emplace_back(
      Announcement(RestoredPoint{ledger_.next_round(), ledger_.trained_samples(),
                                 ledger_.state().final_evaluation_round == next_round}));
  if (!layout_.has_value()) {
    Enter(CoordinatorPhase::kAwaitingLayout);
    return absl::OkStatus();
  }
  return Assign(now);
}

absl::Status Coordinator::Assign(absl::Time now) {
  ASSIGN_OR_RETURN(const std::vector<ElementRange> ranges,
                   PlanShards(*layout_, config_.num_shards));
  ASSIGN_OR_RETURN(std::vector<Bucket> buckets,
                   PlanBuckets(*layout_, ranges, config_.job.bucket_bytes));
  auto map = std::make_shared<ClusterMap>();
  map->layout = *layout_;
  map->buckets = std::move(buckets);
  for (int i = 0; i < config_.num_shards; ++i) {
    map->shards.push_back({i, shards_.entries()[i].address, ranges[i]});
  }
  map_ = std::move(map);
  shards_.MarkLoading(now);
  Enter(CoordinatorPhase::kLoading);
  AssignCommand command = {.server_incarnation = server_incarnation_,
                           .job = config_.job,
                           .map = map_,
                           .source = source_,
                           .folder = {config_.checkpoint_dir, config_.folder_claim_id}};
  const double learning_rate_scale = ledger_.state().learning_rate_scale;
  command.job.schedule.peak *= learning_rate_scale;
  command.job.schedule.minimum *= learning_rate_scale;
  Command(std::move(command));
  return absl::OkStatus();
}

void Coordinator::OnShardLoaded(int shard, uint64_t server_incarnation, const absl::Status& status,
                                absl::Time now) {
  if (phase_ != CoordinatorPhase::kLoading || server_incarnation != server_incarnation_ ||
      !shards_.Has(shard)) {
    return;
  }
  if (!status.ok()) {
    Fail(absl::Status(status.code(),
                      absl::StrCat("shard ", shard, " could not load: ", status.message())));
    RaiseAlarm(failure_.message(), now);
    // Workers whose lives the restart has ended come back, and learn that it was in vain.
    quota_.OnReady(now);
    return Advance(now);
  }
  shards_.MarkServing(shard, now);
  Advance(now);
}

bool Coordinator::AdvanceLoading(absl::Time now) {
  if (!shards_.all_serving()) return false;
  schedule_.Restart(ledger_.next_round(), now);
  quota_.OnReady(now);
  Enter(CoordinatorPhase::kRunning);
  return true;
}

void Coordinator::OnShardFailing(int shard, const absl::Status& error, absl::Time now) {
  if (!is_ready()) return;
  const absl::Status failure(error.code(), absl::StrCat("shard ", shard, ": ", error.message()));
  RaiseAlarm(failure.message(), now);
  if (!shard_failure_.ok()) return;
  shard_failure_ = failure;
  BeginLastSave(shard_failure_.message(), config_.stop_timeout, now);
}

void Coordinator::Fail(const absl::Status& status) {
  failure_ = status;
  Enter(CoordinatorPhase::kFailed);
}

void Coordinator::Enter(CoordinatorPhase phase) {
  phase_ = phase;
  Touch();
  Tell(absl::StrCat("cluster state=", StateName(), " round=", ledger_.next_round().value()));
}

}  // namespace lodestar
