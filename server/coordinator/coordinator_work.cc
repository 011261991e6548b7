// Rounds and grants: how the coordinator goes from one round to the next, and to the end of the
// job.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "server/coordinator/coordinator.h"

namespace lodestar {
namespace {

// For a worker whose pace is not known yet. For a chunk of 4 MiB that is 7 kB/s: no path that is
// worth training over is as slow.
constexpr absl::Duration kStallPatience = absl::Minutes(10);

void SetHeldout(const HeldoutSums& heldout, RoundSummary* summary) {
  summary->heldout_complete = heldout.complete;
  if (heldout.predictions == 0) return;
  const auto predictions = static_cast<double>(heldout.predictions);
  summary->heldout_loss = heldout.loss_sum / predictions;
  summary->heldout_accuracy = static_cast<double>(heldout.correct) / predictions;
}

bool IsFinite(const GrantReport& report) {
  return (report.num_predictions == 0 || std::isfinite(report.loss_sum)) &&
         (report.heldout_predictions == 0 || std::isfinite(report.heldout_loss_sum));
}

}  // namespace

absl::StatusOr<GrantAnswer> Coordinator::RequestGrant(const WorkerLife& life,
                                                      const std::optional<GrantReport>& report,
                                                      absl::Time now) {
  RETURN_IF_ERROR(membership_.Renew(life.worker, life.incarnation, now));
  if (!membership_.Find(life.worker)->is_member()) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker '", NameOf(life.worker), "' has not joined; call Join first"));
  }
  // Before the servers are ready again, everything since the checkpoint is void: so is the report.
  if (is_ready()) {
    if (report.has_value()) RETURN_IF_ERROR(CountReport(life.worker, *report, now));
    desks_[life.worker].SetWaiting();
    Advance(now);
  }
  return AnswerFor(life.worker, now);
}

absl::Status Coordinator::BeginLeave(const WorkerLife& life, absl::Time now) {
  RETURN_IF_ERROR(membership_.Renew(life.worker, life.incarnation, now));
  desks_[life.worker].BeginLeave();
  return absl::OkStatus();
}

absl::StatusOr<GrantAnswer> Coordinator::PollGrant(const WorkerLife& life, absl::Time now) const {
  RETURN_IF_ERROR(membership_.Check(life.worker, life.incarnation));
  return AnswerFor(life.worker, now);
}

absl::Status Coordinator::CountReport(WorkerId worker, const GrantReport& report, absl::Time now) {
  WorkerDesk& desk = desks_[worker];
  ASSIGN_OR_RETURN(const WorkerDesk::Match match, desk.Classify(report));
  if (match == WorkerDesk::Match::kRepeat) return absl::OkStatus();
  if (!IsFinite(report)) {
    const Incarnation incarnation = membership_.Find(worker)->incarnation;
    OnNotFinite(worker, report.round,
                absl::StrCat("the loss of worker '", NameOf(worker), "' is not finite"), now);
    return membership_.Check(worker, incarnation);
  }
  desk.CountFinite();
  ++finite_reports_;
  // A round that is not open any more was committed without this worker.
  if (auto round = open_.find(report.round); round != open_.end()) {
    round->second.Report(worker, report);
  }
  desk.Complete(report, now);
  return absl::OkStatus();
}

bool Coordinator::IsStalled(const WorkerDesk& desk, const OpenRound& round, absl::Time now) const {
  const absl::Duration patience = config_.lease + progress_.usual_round();
  const absl::Duration long_patience = std::max(patience, kStallPatience);
  const absl::Time begin = std::max(round.opened_at(), servers_back_at_);
  if (desk.still().has_value()) {
    // How slow its path is shows in its first round.
    return now - std::max(begin, desk.still()->since) >
           (desk.has_reported() ? patience : long_patience);
  }
  // Bytes that are pushed may be told once all are taken, which over a slow path lasts.
  return desk.is_pulling() && now - std::max(begin, desk.same_since()) > long_patience;
}

// A round waits without end for a worker whose heartbeats come, but not a byte of what it pushes or
// pulls. Computing is not judged. Where nobody gets on, as when it is the server that cannot be
// reached, nobody is dropped: it would serve no one, and all go on where they were once they can.
void Coordinator::DropStalled(absl::Time now) {
  if (is_shard_away() || !is_ready()) return;
  std::map<WorkerId, Round> stalled;
  for (const auto& [number, round] : open_) {
    for (WorkerId worker : round.Missing()) {
      if (IsStalled(desks_.at(worker), round, now)) stalled.emplace(worker, number);
    }
  }
  const std::vector<const WorkerRecord*> members = membership_.Members();
  const bool others_get_on =
      std::any_of(members.begin(), members.end(), [&](const WorkerRecord* member) {
        return !stalled.contains(member->id) && !desks_.at(member->id).still().has_value();
      });
  if (!others_get_on) return;
  std::vector<EndedLife> ended;
  for (const auto& [worker, round] : stalled) {
    std::string what = StandstillOf(worker, now);
    if (what.empty()) what = "its pull moves no byte";
    RaiseAlarm(absl::StrCat("worker '", NameOf(worker), "' held up rounds: ", what,
                            "; it is dropped, and comes back once it reaches every server. See to "
                            "its path to the servers"),
               now);
    absl::StatusOr<EndedLife> life =
        membership_.Drop(worker, membership_.Find(worker)->incarnation,
                         absl::StrCat("held up round ", round.value(), ": ", what), now);
    if (life.ok()) ended.push_back(*std::move(life));
  }
  if (!ended.empty()) EndLives(ended, now);
}

void Coordinator::Advance(absl::Time now) {
  while (AdvanceOnce(now)) {
  }
}

bool Coordinator::AdvanceOnce(absl::Time now) {
  switch (phase_) {
    case CoordinatorPhase::kLoading:
      return AdvanceLoading(now);
    case CoordinatorPhase::kRunning:
      return !is_shard_away() && AdvanceTraining(now);
    case CoordinatorPhase::kEvaluating:
      return !is_shard_away() && AdvanceEvaluation(now);
    case CoordinatorPhase::kSaving:
      return !is_shard_away() && AdvanceSaving(now);
    case CoordinatorPhase::kDone:
      return AdvanceDone(now);
    case CoordinatorPhase::kFailed:
      return Returning(now).empty() && AdvanceFailed();
    default:
      return false;
  }
}

bool Coordinator::AdvanceTraining(absl::Time now) {
  if (CloseRounds(now)) return true;
  if (policy_->uses_rosters() && !open_.empty()) return false;
  if (is_stopping() || ledger_.is_exhausted()) {
    if (!open_.empty()) return false;
    Enter(is_stopping() ? CoordinatorPhase::kSaving : CoordinatorPhase::kEvaluating);
    return true;
  }
  if (is_work_held()) return open_.empty() && AdvanceLastSave(now);
  if (supply_.is_awaited()) return false;
  MaybeCheckpoint(now);
  return GrantNext(now);
}

bool Coordinator::AdvanceEvaluation(absl::Time now) {
  if (!open_.empty()) {
    const OpenRound round = open_.begin()->second;
    if (!round.Missing().empty()) return false;
    open_.clear();
    if (round.was_lost_from()) {
      ++evaluation_attempt_;
      Tell("final evaluation is repeated: a worker was lost during it");
    } else {
      ledger_.FinishFinalEvaluation();
      CloseRound(round, now);
    }
    Touch();
    return true;
  }
  if (is_stopping() || !ledger_.needs_final_evaluation()) {
    Enter(CoordinatorPhase::kSaving);
    return true;
  }
  if (is_work_held()) return AdvanceLastSave(now);
  const std::vector<RosterMember> roster = Waiting();
  if (roster.empty() || !ledger_.LackingFor(roster).empty()) return false;
  Give(ledger_.OpenFinalEvaluation(membership_.view(), roster,
                                   ledger_.next_round() + evaluation_attempt_, committed_round()),
       now);
  return true;
}

// Closes the rounds that are over.
bool Coordinator::CloseRounds(absl::Time now) {
  bool has_closed = false;
  for (auto it = open_.begin(); it != open_.end();) {
    const std::vector<MemberProgress> missing = MissingOf(it->second);
    if (policy_->OnRoundEnd({it->first, it->second.reported(), missing}).action != Action::kApply) {
      ++it;
      continue;
    }
    const OpenRound round = std::move(it->second);
    it = open_.erase(it);
    CloseRound(round, now);
    has_closed = true;
  }
  return has_closed;
}

void Coordinator::CloseRound(const OpenRound& round, absl::Time now) {
  Touch();
  if (policy_->uses_rosters() && !round.is_evaluation() && round.reported() > 0) {
    Command(CloseRoundCommand{round.round(), round.Reported()});
  }
  RoundSummary summary = round.Summarize(now);
  if (summary.committed_short) {
    Tell(absl::StrCat("round ", summary.round.value(), " went on with ", summary.workers, " of ",
                      round.plan().roster.size(), " workers; ", summary.samples, " of ",
                      round.plan().total_samples(), " samples counted"));
  }
  if (!policy_->uses_rosters() && summary.workers == 0) {
    ledger_.LoseRound(summary.round);
    progress_.OnRoundLost();
    return;
  }
  const std::optional<HeldoutSums> heldout =
      round.is_evaluation() ? round.Heldout()
                            : ledger_.CloseRound(summary.round, summary.samples, round.Heldout());
  if (heldout.has_value()) SetHeldout(*heldout, &summary);
  summary.total_samples = ledger_.trained_samples();
  summary.epoch = ledger_.epoch();
  progress_.OnRound(summary);
  summary.trained_time = progress_.trained_time();
  effects_.push_back(Announcement(summary));
}

// Opens the next round for those that wait and may be in it.
bool Coordinator::GrantNext(absl::Time now) {
  const ClusterView view = View(now);
  const ClusterFacts facts = view.Facts();
  if (policy_->OnOpening(facts).action != Action::kApply) return false;
  const int max_roster = std::min(policy_->max_roster(), ledger_.max_roster());
  std::vector<RosterMember> roster;
  for (const MemberProgress& member : view.members) {
    if (static_cast<int>(roster.size()) == max_roster) break;
    if (!member.waiting || policy_->OnGrant(member, facts).action != Action::kApply) continue;
    roster.push_back({member.worker, membership_.Find(member.worker)->incarnation, 0});
  }
  if (roster.empty()) return false;
  const WorkLedger::Work work = ledger_.OpenRound(membership_.view(), roster, committed_round());
  if (policy_->uses_rosters()) Command(OpenRoundCommand{work.plan});
  quota_.OnWork();
  Give(work, now);
  return true;
}

void Coordinator::Give(const WorkLedger::Work& work, absl::Time now) {
  for (size_t i = 0; i < work.grants.size(); ++i) {
    Grant grant = work.grants[i];
    grant.loss = progress_.loss();
    desks_[work.plan.roster[i].worker].Give(grant);
  }
  open_.emplace(work.plan.round, OpenRound(work, now));
  progress_.OnOpened(now);
  Touch();
}

}  // namespace lodestar
