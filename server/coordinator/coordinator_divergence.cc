// What is not as it should be: parts of rounds that cannot be counted, and runs that have diverged.
//
// One worker whose numbers are not finite, while those of others are, is sick: it loses its life,
// may come back, and is turned away after some times. If no member is left whose last numbers were
// finite or are still to come, nobody is to blame: the run has diverged.
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/coordinator/coordinator.h"

namespace lodestar {

void Coordinator::OnWorkerFault(const WorkerFault& fault, absl::Time now) {
  const WorkerRecord* record = membership_.Find(fault.worker);
  // Also of a life that has just ended: whoever is refused may leave before the shard is heard.
  if (record == nullptr || record->incarnation != fault.incarnation || !is_ready()) {
    return;
  }
  switch (fault.kind) {
    case WorkerFault::Kind::kNotFinite:
      OnNotFinite(fault.worker, fault.round, fault.text, now);
      return;
    case WorkerFault::Kind::kNotPushed:
      RaiseAlarm(absl::StrCat("worker '", record->name,
                              "' reports rounds that it has not pushed; it is dropped"),
                 now);
      DropWorker(fault.worker, fault.text, now);
      return;
  }
}

void Coordinator::OnNotFinite(WorkerId worker, Round round, absl::string_view text,
                              absl::Time now) {
  const WorkerRecord* record = membership_.Find(worker);
  // Once per life, however many buckets say so.
  if (!desks_[worker].CountNotFinite(record->incarnation, finite_reports_)) return;
  RaiseAlarm(absl::StrCat("worker '", record->name,
                          "' has sent what is NaN, infinite or beyond all reason; it is not "
                          "counted"),
             now);
  for (const WorkerRecord* member : membership_.Members()) {
    if (desks_[member->id].is_finite()) return DropWorker(worker, text, now);
  }
  // They were computed on the weights after `round` updates.
  Diverge(round, round, absl::StrCat("no worker's numbers are finite any more: ", text), now);
}

void Coordinator::DropWorker(WorkerId worker, absl::string_view reason, absl::Time now) {
  absl::StatusOr<EndedLife> ended =
      membership_.Drop(worker, membership_.Find(worker)->incarnation, reason, now);
  if (ended.ok()) EndLives({*std::move(ended)}, now);
}

void Coordinator::OnShardDiverged(int shard, uint64_t server_incarnation, Round round,
                                  absl::string_view text, absl::Time now) {
  if (server_incarnation != server_incarnation_) return;
  // What was saved was finite. Asynchronous rounds do not end in order: a checkpoint of more rounds
  // may have come before this one's update.
  const Round first_bad = policy_->uses_rosters() ? round + 1 : ledger_.next_round() + 1;
  Diverge(round, first_bad, absl::StrCat("shard ", shard, ": ", text), now);
}

void Coordinator::Diverge(Round round, Round first_bad, absl::string_view why, absl::Time now) {
  if (!is_ready() || !failure_.ok() || should_exit_) return;
  const std::optional<PublishedCheckpoint>& last = checkpoints_.last();
  const bool is_last_bad = last.has_value() && last->round >= first_bad;
  const std::string good = !last.has_value() ? "none"
                           : is_last_bad
                               ? absl::StrCat("the one before ", last->path,
                                              ", which has these weights and is set aside")
                               : absl::StrCat("round ", last->round.value(), ", ", last->path);
  const std::string what = absl::StrCat("diverged at round ", round.value(),
                                        "; last good checkpoint: ", good, ". ", why);
  divergence_.Note(round, what, now);
  if (checkpoints_.is_active()) Do(DiscardTask{std::string(checkpoints_.active_directory())});
  checkpoints_.Abort(absl::FailedPreconditionError(what));
  open_.clear();
  // Before anything is restored, and for the servers that are started after this one, too.
  Do(SetAsideTask{first_bad});
  if (divergence_.MayRollBack() && !is_stopping() && !is_work_held()) {
    divergence_.RollBack();
    RaiseAlarm(absl::StrCat(what, ". Goes back to ",
                            last.has_value() ? "that checkpoint" : "the first weights",
                            " with the learning rate times ", divergence_.learning_rate_scale(),
                            " (rollback ", divergence_.rollbacks(), " of ",
                            divergence_.max_rollbacks(), ")"),
               now);
    Enter(CoordinatorPhase::kRestoring);
    Do(ChooseRestoreTask{});
    return;
  }
  const std::string after = divergence_.rollbacks() > 0
                                ? absl::StrCat(" (after ", divergence_.rollbacks(), " rollbacks)")
                                : "";
  if (is_last_bad) checkpoints_.ForgetLast();
  failure_ = absl::FailedPreconditionError(
      absl::StrCat(what, after, ". Lower --learning_rate, or set --clip_norm, and start again"));
  RaiseAlarm(failure_.message(), now);
  stop_reason_ = what;
  last_save_.Begin(/*gives_up=*/true, now);
  Enter(CoordinatorPhase::kDone);
  Advance(now);
}

}  // namespace lodestar
