#include "server/coordinator/coordinator_facts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/coordinator/shown_workers.h"
#include "server/sync/policy_factory.h"

namespace lodestar {
namespace {

// How long a wait lasts before the log is told.
constexpr absl::Duration kWaitPatience = absl::Seconds(2);
constexpr absl::Duration kRoundPatience = absl::Minutes(1);

std::string AgeText(absl::Duration age) {
  return absl::FormatDuration(absl::Trunc(age, absl::Milliseconds(100)));
}

std::string Held(const Decision& decision) {
  return decision.action == Action::kApply ? "" : decision.reason;
}

// The missing of a round, without those who have sent theirs and only wait behind others for the
// acknowledgement (sums have a fixed order). One whose transfers do not move does not only wait.
std::vector<WorkerId> Awaited(const OpenRound& round, const std::map<WorkerId, WorkerDesk>& desks) {
  const std::vector<WorkerId> missing = round.Missing();
  std::vector<WorkerId> awaited;
  for (WorkerId worker : missing) {
    auto desk = desks.find(worker);
    const bool only_waits =
        desk != desks.end() && desk->second.is_delivering() && !desk->second.still().has_value();
    if (!only_waits) awaited.push_back(worker);
  }
  return awaited.empty() ? missing : awaited;
}

}  // namespace

CoordinatorFacts::CoordinatorFacts(CoordinatorConfig config, std::optional<Layout> layout,
                                   absl::Time now)
    : config_(std::move(config)),
      started_at_(now),
      policy_(MakeClusterPolicy(config_.job)),
      layout_(std::move(layout)),
      shards_(config_.num_shards, now),
      norms_(config_.num_shards),
      membership_(MembershipTable::Config{.lease = config_.lease}),
      ledger_(config_.job, LedgerState{}),
      quota_(config_.job, config_.lease),
      checkpoints_(config_.num_shards),
      schedule_(config_.checkpoint_schedule),
      last_save_(!config_.fallback_dir.empty()),
      divergence_(config_.divergence) {}

std::string CoordinatorFacts::WaitingFor(absl::Time now, Ages ages) const {
  const bool has_ages = ages == Ages::kShown;
  const std::optional<absl::Time> age_at = has_ages ? std::optional(now) : std::nullopt;
  if (is_shard_away() && (is_ready() || phase_ == CoordinatorPhase::kLoading)) {
    return absl::StrCat("waits for the server of ", shards_.Away(age_at));
  }
  switch (phase_) {
    case CoordinatorPhase::kAwaitingShards:
      return absl::StrCat("waits for the server of ",
                          shards_.Lacking(ShardRegistry::State::kAttached, age_at));
    case CoordinatorPhase::kRestoring:
      return "looks for the newest checkpoint that verifies";
    case CoordinatorPhase::kAwaitingLayout:
      return "waits for a client that brings the layout of its model";
    case CoordinatorPhase::kLoading:
      return absl::StrCat("waits for weights to be loaded by ",
                          shards_.Lacking(ShardRegistry::State::kServing, age_at));
    case CoordinatorPhase::kSaving:
      return "waits for the last checkpoint to be written";
    case CoordinatorPhase::kDone: {
      const std::string save = WaitingForLastSave(now, ages);
      return save.empty() ? WaitingForLeave(now) : save;
    }
    case CoordinatorPhase::kFailed: {
      const std::string leave = WaitingForLeave(now);
      return absl::StrCat(failure_.message(), leave.empty() ? "" : "; ", leave);
    }
    case CoordinatorPhase::kRunning:
    case CoordinatorPhase::kEvaluating:
      break;
  }
  if (supply_.is_awaited()) {
    return supply_.supplier().has_value()
               ? absl::StrCat("waits for ", NameOf(supply_.supplier()->worker),
                              " to supply the initial weights")
               : "waits for a client that supplies the initial weights";
  }
  const bool has_round = policy_->uses_rosters() || phase_ == CoordinatorPhase::kEvaluating ||
                         is_stopping() || is_work_held() || ledger_.is_exhausted();
  if (has_round && !open_.empty()) {
    const OpenRound& round = open_.begin()->second;
    std::vector<std::string> names;
    for (WorkerId worker : Awaited(round, desks_)) names.push_back(NameOf(worker));
    return absl::StrCat(round.is_evaluation() ? "the final evaluation" : "round ",
                        round.is_evaluation() ? "" : absl::StrCat(round.round().value()),
                        " waits for ", absl::StrJoin(names, ", "),
                        has_ages ? ", open for " + AgeText(now - round.opened_at()) : "",
                        Standstills(age_at));
  }
  if (is_work_held()) {
    const std::string save = WaitingForLastSave(now, ages);
    return absl::StrCat("no work is handed out: ", hold_reason_, save.empty() ? "" : "; ", save);
  }
  if (phase_ == CoordinatorPhase::kEvaluating) {
    std::vector<std::string> names;
    for (WorkerId worker : ledger_.LackingFor(Waiting())) names.push_back(NameOf(worker));
    return absl::StrCat("the final evaluation waits for ",
                        names.empty() ? "a worker" : absl::StrJoin(names, ", "));
  }
  const ClusterView view = View(now);
  if (std::string held = Held(policy_->OnOpening(view.Facts())); !held.empty()) return held;
  for (const MemberProgress& member : view.members) {
    if (!member.waiting) continue;
    std::string held = Held(policy_->OnGrant(member, view.Facts()));
    if (!held.empty()) return held + Standstills(age_at);
  }
  return "";
}

std::string CoordinatorFacts::Standstills(std::optional<absl::Time> age_at) const {
  std::string text;
  for (const auto& [number, round] : open_) {
    for (WorkerId worker : round.Missing()) {
      const std::string what = StandstillOf(worker, age_at);
      if (!what.empty()) absl::StrAppend(&text, "; worker ", NameOf(worker), ": ", what);
    }
  }
  return text;
}

std::string CoordinatorFacts::StandstillOf(WorkerId worker,
                                           std::optional<absl::Time> age_at) const {
  const auto desk = desks_.find(worker);
  if (desk == desks_.end() || !desk->second.still().has_value()) return "";
  const WorkerDesk::Still& still = *desk->second.still();
  return absl::StrCat("no bytes ", desk->second.is_pulling() ? "from" : "to", " shard ",
                      still.shard, " at ", shards_.entries()[still.shard].address,
                      age_at.has_value() ? " for " + AgeText(*age_at - still.since) : "");
}

std::string CoordinatorFacts::WaitingForLeave(absl::Time now) const {
  const std::vector<std::string> returning = Returning(now);
  if (!returning.empty()) {
    return absl::StrCat("gives ", absl::StrJoin(returning, ", "),
                        " time to come back and learn that the job is over");
  }
  const bool ends = is_stopping() || config_.exit_when_done || phase_ == CoordinatorPhase::kFailed;
  if (!ends) return "";
  if (awaits_strangers(now)) {
    return "gives workers of an earlier server time to come back and learn that the job is over";
  }
  const std::vector<std::string> names = Present();
  return names.empty() ? "" : absl::StrCat("waits for ", absl::StrJoin(names, ", "), " to leave");
}

std::vector<std::string> CoordinatorFacts::Present() const {
  std::vector<std::string> names;
  for (const auto& [id, record] : membership_.workers()) {
    if (record.is_alive()) names.push_back(record.name);
  }
  return names;
}

std::string CoordinatorFacts::WaitingForLastSave(absl::Time now, Ages ages) const {
  if (!last_save_.is_begun() || last_save_.outcome().has_value()) return "";
  if (checkpoints_.is_active() || last_save_.error().ok()) {
    return "waits for the last checkpoint to be written";
  }
  const absl::Duration pause = std::max(last_save_.next_try() - now, absl::ZeroDuration());
  return absl::StrCat("the last checkpoint failed and is tried again",
                      ages == Ages::kShown ? " in " + AgeText(pause) : "", ": ",
                      last_save_.error().message());
}

std::vector<std::string> CoordinatorFacts::Returning(absl::Time now) const {
  std::vector<std::string> names;
  if (!quota_.IsGathering(now)) return names;
  for (const auto& [id, record] : membership_.workers()) {
    if (record.is_away()) names.push_back(record.name);
  }
  return names;
}

absl::Duration CoordinatorFacts::WaitPatience() const {
  if (open_.empty()) return kWaitPatience;
  // It has lasted before it was told.
  if (!Standstills(/*age_at=*/std::nullopt).empty()) return kWaitPatience;
  // Rounds take their time; one that only waits for some is held up by them.
  const bool has_stragglers = !open_.begin()->second.Arrived().empty();
  return std::max({config_.lease, has_stragglers ? kWaitPatience : kRoundPatience,
                   2 * progress_.usual_round()});
}

absl::string_view CoordinatorFacts::StateName() const {
  const bool needs_servers = phase_ == CoordinatorPhase::kRunning ||
                             phase_ == CoordinatorPhase::kEvaluating ||
                             phase_ == CoordinatorPhase::kSaving;
  if (is_shard_away() && needs_servers) return "waiting_for_servers";
  switch (phase_) {
    case CoordinatorPhase::kAwaitingShards:
      return "waiting_for_servers";
    case CoordinatorPhase::kRestoring:
      return "restoring";
    case CoordinatorPhase::kAwaitingLayout:
      return "waiting_for_layout";
    case CoordinatorPhase::kLoading:
      return "loading";
    case CoordinatorPhase::kEvaluating:
      return "evaluating";
    case CoordinatorPhase::kSaving:
      return "saving";
    case CoordinatorPhase::kDone:
      return failure_.ok() ? "done" : "diverged";
    case CoordinatorPhase::kFailed:
      return "failed";
    case CoordinatorPhase::kRunning:
      break;
  }
  if (is_stopping()) return "stopping";
  return open_.empty() ? "waiting_for_workers" : "training";
}

ClusterSnapshot CoordinatorFacts::Snapshot(absl::Time now) const {
  ClusterSnapshot snapshot;
  const LedgerState ledger = ledger_.state();
  snapshot.server_incarnation = server_incarnation_;
  snapshot.uptime = now - started_at_;
  snapshot.state = std::string(StateName());
  snapshot.waiting_for = WaitingFor(now);
  snapshot.is_held_up = waits_.IsTold(WaitingFor(now, Ages::kLeftOut));
  snapshot.round = ledger.next_round;
  snapshot.total_rounds = config_.job.schedule.total_rounds;
  snapshot.epoch = ledger_.epoch();
  snapshot.samples = ledger.next_sample;
  snapshot.learning_rate =
      ledger_.LearningRate(Round(std::max<int64_t>(0, ledger.next_round - 1)), /*step=*/0);
  divergence_.Describe(now, snapshot);
  const auto open_rounds = static_cast<int64_t>(open_.size());
  progress_.Describe({.remaining_rounds = snapshot.total_rounds - ledger.next_round + open_rounds,
                      .tokens_per_sample = ledger_.tokens_per_sample(),
                      .is_training = phase_ == CoordinatorPhase::kRunning && !open_.empty()},
                     now, snapshot);
  snapshot.view = membership_.view();
  snapshot.workers = ShownWorkers(membership_, desks_, ledger_, refusals_, now);
  if (!open_.empty()) {
    const OpenRound& round = open_.begin()->second;
    snapshot.open_round = OpenRoundSnapshot{round.round(), now - round.opened_at(), {}, {}};
    for (WorkerId worker : round.Arrived()) snapshot.open_round->arrived.push_back(NameOf(worker));
    for (WorkerId worker : round.Missing()) {
      auto desk = desks_.find(worker);
      const bool delivers = desk != desks_.end() && desk->second.is_delivering();
      snapshot.open_round->missing.push_back({NameOf(worker), now - round.opened_at(),
                                              round.is_evaluation() ? "evaluation"
                                              : delivers            ? "acknowledgement"
                                                                    : "contribution"});
    }
  }
  for (size_t i = 0; i < shards_.entries().size(); ++i) {
    const ShardRegistry::Entry& entry = shards_.entries()[i];
    snapshot.shards.push_back({static_cast<int>(i), entry.address,
                               std::string(ShardRegistry::StateName(entry)),
                               map_ == nullptr ? ElementRange{} : map_->shards[i].range});
  }
  snapshot.last_checkpoint = checkpoints_.Snapshot(now);
  snapshot.resumed = resumed_;
  snapshot.alarms = alarms_.Snapshot(now);
  if (layout_.has_value()) {
    snapshot.num_parameters = static_cast<uint64_t>(layout_->num_elements());
    snapshot.layout_hash = layout_->hash();
  }
  return snapshot;
}

bool CoordinatorFacts::is_ready() const {
  switch (phase_) {
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

absl::Status CoordinatorFacts::CheckReady(absl::Time now) const {
  if (is_ready()) return absl::OkStatus();
  switch (phase_) {
    case CoordinatorPhase::kDone:
      return absl::UnavailableError("the job was stopped before it began");
    case CoordinatorPhase::kFailed:
      return absl::FailedPreconditionError(
          absl::StrCat("the job has failed: ", failure_.message()));
    default:
      return absl::UnavailableError(
          absl::StrCat("not ready: ", WaitingFor(now), "; the same call again"));
  }
}

std::string CoordinatorFacts::NameOf(WorkerId worker) const {
  const WorkerRecord* record = membership_.Find(worker);
  return record == nullptr ? absl::StrCat("worker ", worker.value()) : record->name;
}

GrantAnswer CoordinatorFacts::AnswerFor(WorkerId worker, absl::Time now) const {
  GrantAnswer answer;
  const WorkerDesk& desk = desks_.at(worker);
  const bool is_over = phase_ == CoordinatorPhase::kDone || phase_ == CoordinatorPhase::kFailed;
  const bool may_leave = desk.is_leaving() && !(is_ready() && desk.grant().has_value());
  if (!is_ready() && !is_over && !may_leave) {
    answer.pending_reason = WaitingFor(now);
  } else if (is_over || may_leave) {
    Grant done;
    done.kind = Grant::Kind::kDone;
    done.round = ledger_.next_round();
    done.view = membership_.view();
    done.total_rounds = config_.job.schedule.total_rounds;
    done.loss = progress_.loss();
    done.has_failed = !failure_.ok();
    if (!is_over) {
      done.reason = "there is nothing to hand in";
    } else if (done.has_failed) {
      done.reason = std::string(failure_.message());
    } else {
      done.reason = is_stopping() ? absl::StrCat("stopped: ", *stop_reason_)
                                  : absl::StrCat("all ", done.total_rounds, " rounds are done");
    }
    answer.grant = std::move(done);
  } else if (desk.grant().has_value()) {
    answer.grant = desk.grant();
  } else {
    answer.pending_reason = PendingReason(worker, now);
  }
  return answer;
}

std::string CoordinatorFacts::PendingReason(WorkerId worker, absl::Time now) const {
  if (is_shard_away() || phase_ != CoordinatorPhase::kRunning || is_stopping() || is_work_held() ||
      ledger_.is_exhausted() || supply_.is_awaited()) {
    return WaitingFor(now);
  }
  const ClusterView view = View(now);
  if (std::string held = Held(policy_->OnOpening(view.Facts())); !held.empty()) return held;
  auto self = std::find_if(view.members.begin(), view.members.end(),
                           [&](const MemberProgress& m) { return m.worker == worker; });
  if (self != view.members.end()) {
    if (std::string held = Held(policy_->OnGrant(*self, view.Facts())); !held.empty()) return held;
  }
  return absl::StrCat("there are more workers than --global_batch_size=",
                      config_.job.global_batch_size, " has samples; waits for one to leave");
}

std::vector<RosterMember> CoordinatorFacts::Waiting() const {
  std::vector<RosterMember> waiting;
  for (const WorkerRecord* record : membership_.Members()) {
    if (desks_.at(record->id).is_waiting()) waiting.push_back({record->id, record->incarnation, 0});
  }
  return waiting;
}

// Weights of all rounds that are over. Without rosters any weights will do.
Round CoordinatorFacts::committed_round() const {
  if (!policy_->uses_rosters()) return Round(0);
  const bool is_one_open = !open_.empty() && !open_.begin()->second.is_evaluation();
  return is_one_open ? open_.begin()->first : ledger_.next_round();
}

ClusterView CoordinatorFacts::View(absl::Time now) const {
  ClusterView view;
  view.required = quota_.Required(now);
  for (const WorkerRecord* record : membership_.Members()) {
    const WorkerDesk& desk = desks_.at(record->id);
    view.members.push_back(
        {record->id, record->name, desk.progress(), desk.is_waiting(), desk.grant().has_value()});
  }
  if (open_.empty()) return view;
  const OpenRound& round = open_.begin()->second;
  view.open_round = round.round();
  view.reported = round.reported();
  view.missing = MissingOf(round);
  return view;
}

std::vector<MemberProgress> CoordinatorFacts::MissingOf(const OpenRound& round) const {
  std::vector<MemberProgress> missing;
  for (WorkerId worker : round.Missing()) {
    const WorkerDesk& desk = desks_.at(worker);
    missing.push_back(
        {worker, NameOf(worker), desk.progress(), desk.is_waiting(), desk.grant().has_value()});
  }
  return missing;
}

int64_t CoordinatorFacts::rounds_done() const {
  if (policy_->uses_rosters()) return committed_round().value();
  return ledger_.next_round().value() - static_cast<int64_t>(open_.size());
}

std::optional<absl::StatusOr<JobEnding>> CoordinatorFacts::Ending() const {
  const bool is_over = phase_ == CoordinatorPhase::kDone && last_save_.outcome().has_value();
  if (!is_over && phase_ != CoordinatorPhase::kFailed) return std::nullopt;
  if (!failure_.ok()) {
    return absl::FailedPreconditionError(absl::StrCat("the job has failed: ", failure_.message()));
  }
  const int64_t rounds = rounds_done();
  const int64_t total = config_.job.schedule.total_rounds;
  return JobEnding{rounds < total ? absl::StrCat("stopped after ", rounds, " of ", total, " rounds")
                                  : absl::StrCat("complete after all ", total, " rounds"),
                   *last_save_.outcome()};
}

std::string CoordinatorFacts::Unsaved() const {
  const std::optional<PublishedCheckpoint>& last = checkpoints_.last();
  const int64_t begin = last.has_value() ? last->round.value() : 0;
  const int64_t end = ledger_.next_round().value();
  if (end <= begin) return "";
  return absl::StrCat(
      "rounds ", begin, " to ", end - 1, " are in no checkpoint",
      last.has_value() ? absl::StrCat("; the newest is ", last->path) : ", and there is none");
}

std::optional<absl::Status> CoordinatorFacts::outcome() const {
  if (should_exit_) return failure_;
  return std::nullopt;
}

}  // namespace lodestar
