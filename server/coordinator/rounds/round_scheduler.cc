// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/rounds/round_scheduler.h"

#include <algorithm>
#include <set>
#include <utility>

#include "server/coordinator/rounds/speed_balance.h"
#include "server/sync/decision.h"
#include "server/sync/policy_factory.h"

namespace lodestar::rounds {
namespace {

void SetHeldout(const HeldoutSums& heldout, RoundSummary* summary) {
  summary->heldout_complete = heldout.complete;
  if (heldout.predictions == 0) return;
  const auto predictions = static_cast<double>(heldout.predictions);
  summary->heldout_loss = heldout.loss_sum / predictions;
  summary->heldout_accuracy = static_cast<double>(heldout.correct) / predictions;
}

}  // namespace

RoundScheduler::RoundScheduler(const job::JobSpec& job, int num_shards, absl::Duration lease,
                               std::string upstream, absl::Time now)
    : policy_(sync::MakeClusterPolicy(job)),
      num_shards_(num_shards),
      ledger_(job, checkpoints::LedgerState{}),
      quota_(job, lease) {
  if (!upstream.empty()) site_.emplace(std::move(upstream), now);
}

RoundScheduler::Memory RoundScheduler::memory() const {
  Memory memory = {.ledger = ledger_.memory(),
                   .open = {},
                   .evaluation_attempt = evaluation_attempt_,
                   .quota = quota_.memory(),
                   .progress = progress_.memory(),
                   .last_rounds = {unrecorded_.begin(), unrecorded_.end()}};
  for (const auto& [number, round] : open_) memory.open.emplace(number, round.memory());
  return memory;
}

void RoundScheduler::Resume(const job::JobSpec& job, Memory memory, absl::Time now) {
  ledger_ = WorkLedger(job, std::move(memory.ledger));
  for (auto& [number, round] : memory.open) {
    open_.emplace(number, OpenRound(std::move(round), now));
  }
  evaluation_attempt_ = memory.evaluation_attempt;
  quota_.Resume(memory.quota);
  progress_.Resume(memory.progress);
  unrecorded_.assign(memory.last_rounds.begin(), memory.last_rounds.end());
  if (!open_.empty()) progress_.OnOpened(now);
}

void RoundScheduler::Restore(const job::JobSpec& job, const checkpoints::LedgerState& ledger,
                             const checkpoints::ProgressState& progress) {
  ledger_ = WorkLedger(job, ledger);
  progress_.Restore(progress);
  assignments_.clear();
  open_.clear();
  before_open_round_.reset();
  evaluation_attempt_ = 0;
  unrecorded_.clear();
}

const WorkerAssignment& RoundScheduler::Of(WorkerId worker) const {
  const auto found = assignments_.find(worker);
  return found == assignments_.end() ? unknown_ : found->second;
}

void RoundScheduler::BeginMembership(WorkerId worker, absl::Span<const RoundMember> others,
                                     absl::Time now) {
  int64_t slowest = others.empty() ? 0 : Of(others.front().id).progress();
  for (const RoundMember& other : others) slowest = std::min(slowest, Of(other.id).progress());
  assignments_[worker].BeginMembership(slowest, now);
}

void RoundScheduler::EndLife(WorkerId worker, absl::Time now) {
  assignments_[worker].EndLife();
  ledger_.ReleaseWorker(worker);
  for (auto& [number, round] : open_) round.Lose(worker, now);
}

bool RoundScheduler::MayLeave(WorkerId worker, bool is_ready) const {
  const WorkerAssignment& assignment = Of(worker);
  // A worker that waits for its next grant may hold computed steps that the next round needs.
  const bool has_work =
      assignment.grant().has_value() || (assignment.is_waiting() && assignment.owes_contribution());
  return assignment.is_leaving() && !(is_ready && has_work);
}

CountedReport RoundScheduler::Count(WorkerId worker, const messages::RoundReport& report,
                                    const job::JobSpec& job, absl::Time now) {
  WorkerAssignment& assignment = assignments_[worker];
  if (auto round = open_.find(report.round); round != open_.end()) {
    round->second.Report(worker, report, now);
  }
  const CountedReport counted = {assignment.grant(), now - assignment.given_at()};
  assignment.Complete(report, job, now);
  return counted;
}

bool RoundScheduler::OnContributed(int shard, WorkerId worker, Round round) {
  if (!AwaitsContribution(worker, round)) return false;
  WorkerAssignment& assignment = assignments_[worker];
  assignment.OnContributed(shard);
  return !assignment.AwaitsJournals(round, num_shards_);
}

void RoundScheduler::OnServerAttached(int shard) {
  for (auto& [worker, assignment] : assignments_) assignment.OnServerAttached(shard);
}

sync::MemberProgress RoundScheduler::ProgressOf(const RoundMember& member, absl::Time now) const {
  const WorkerAssignment& assignment = Of(member.id);
  const bool is_working = assignment.grant().has_value();
  return {.worker = member.id,
          .name = member.name,
          .rounds_completed = assignment.progress(),
          .waiting = assignment.is_waiting(),
          .working = is_working,
          .usual_round = member.usual_round,
          .since = now - (is_working ? assignment.given_at() : assignment.idle_since())};
}

ClusterView RoundScheduler::View(absl::Span<const RoundMember> members, absl::Time now) const {
  ClusterView view;
  view.required = Required(now);
  for (const RoundMember& member : members) view.members.push_back(ProgressOf(member, now));
  if (open_.empty()) return view;
  const OpenRound& round = open_.begin()->second;
  view.open_round = round.round();
  view.reported = round.reported();
  view.missing = MissingOf(round, members, now);
  return view;
}

std::vector<sync::MemberProgress> RoundScheduler::MissingOf(const OpenRound& round,
                                                            absl::Span<const RoundMember> members,
                                                            absl::Time now) const {
  std::vector<sync::MemberProgress> missing;
  for (const WorkerId worker : round.Missing()) {
    const auto* const member = std::lower_bound(
        members.begin(), members.end(), worker,
        [](const RoundMember& member, WorkerId wanted) { return member.id < wanted; });
    const bool is_found = member != members.end() && member->id == worker;
    missing.push_back(ProgressOf(is_found ? *member : RoundMember{worker, {}, {}}, now));
  }
  return missing;
}

std::vector<sync::RosterMember> RoundScheduler::Waiting(
    absl::Span<const RoundMember> members) const {
  std::vector<sync::RosterMember> waiting;
  for (const RoundMember& member : members) {
    if (Of(member.id).is_waiting()) waiting.push_back({member.id, member.incarnation, 0});
  }
  return waiting;
}

bool RoundScheduler::OwesContribution(absl::Span<const RoundMember> members) const {
  if (ledger_.is_exhausted()) return false;
  return std::any_of(members.begin(), members.end(), [this](const RoundMember& member) {
    return Of(member.id).owes_contribution();
  });
}

int RoundScheduler::MaxRosterOfNext() const {
  const SiteOrder* const order = WaitingOrder();
  return std::min(policy_->max_roster(),
                  order != nullptr ? WorkLedger::max_roster_of(*order) : ledger_.max_roster());
}

std::vector<sync::RosterMember> RoundScheduler::NextRoster(absl::Span<const RoundMember> members,
                                                           absl::Time now) const {
  const ClusterView view = View(members, now);
  const sync::ClusterFacts facts = view.Facts();
  if (policy_->OnOpening(facts).action != sync::Action::kApply) return {};
  const int max_roster = MaxRosterOfNext();
  std::vector<sync::RosterMember> roster;
  for (size_t i = 0; i < members.size(); ++i) {
    if (static_cast<int>(roster.size()) == max_roster) break;
    const sync::MemberProgress& member = view.members[i];
    if (!member.waiting || policy_->OnGrant(member, facts).action != sync::Action::kApply) continue;
    roster.push_back({member.worker, members[i].incarnation, Of(member.worker).SamplesInHand()});
  }
  return roster;
}

WorkLedger::Work RoundScheduler::OpenNext(absl::Span<const sync::RosterMember> roster,
                                          absl::Span<const RoundMember> members, ViewId view,
                                          WorkLedger::Computes computes, absl::Time now) {
  MemberSpeeds speeds;
  for (const sync::RosterMember& member : roster) {
    speeds.roster.push_back(Of(member.worker).compute_speed());
  }
  for (const RoundMember& member : members) {
    speeds.fastest = std::max(speeds.fastest, Of(member.id).compute_speed());
  }
  if (uses_rosters()) before_open_round_ = ledger_.state();
  const Round min_round = committed_round();
  WorkLedger::Work work;
  if (const SiteOrder* const order = WaitingOrder(); order != nullptr) {
    work = ledger_.OpenOrdered(*order, view, roster, min_round, speeds);
    site_->OnOpened(work.plan.round);
  } else {
    std::set<WorkerId> without_samples;
    for (const sync::RosterMember& member : roster) {
      if (Of(member.worker).wants_no_samples()) without_samples.insert(member.worker);
    }
    work = ledger_.OpenRound(view, roster, min_round, computes, speeds, without_samples);
  }
  quota_.OnWork();
  Give(work, now);
  return work;
}

void RoundScheduler::Give(WorkLedger::Work& work, absl::Time now) {
  for (size_t i = 0; i < work.grants.size(); ++i) {
    work.grants[i].loss = progress_.loss();
    const WorkerId worker = work.plan.roster[i].worker;
    assignments_[worker].Give(work.grants[i], now, work.without_samples.contains(worker));
  }
  open_.emplace(work.plan.round, OpenRound(work, now));
  progress_.OnOpened(now);
}

std::vector<ClosedRound> RoundScheduler::CloseOver(absl::Span<const RoundMember> members,
                                                   absl::Time now) {
  std::vector<ClosedRound> closed;
  for (auto it = open_.begin(); it != open_.end();) {
    const std::vector<sync::MemberProgress> missing = MissingOf(it->second, members, now);
    if (policy_->OnRoundEnd({it->first, it->second.reported(), missing}).action !=
        sync::Action::kApply) {
      ++it;
      continue;
    }
    OpenRound round = std::move(it->second);
    it = open_.erase(it);
    closed.push_back(Close(std::move(round), now));
  }
  return closed;
}

ClosedRound RoundScheduler::Close(OpenRound round, absl::Time now) {
  if (is_site()) site_->OnClosed(round);
  RoundSummary summary = round.Summarize(now);
  const bool is_lost = summary.workers == 0 && !round.is_evaluation();
  Round replaced_by;
  if (is_lost) {
    ledger_.LoseRound(summary.round);
    replaced_by = Round(ledger_.total_rounds() - 1);
  }
  if (is_lost && !uses_rosters()) {
    progress_.OnRoundLost();
    return {std::move(round), std::move(summary), is_lost, replaced_by, /*is_announced=*/false};
  }
  std::optional<HeldoutSums> heldout;
  if (round.is_evaluation()) {
    heldout = round.Heldout();
  } else if (!is_lost) {
    heldout = ledger_.CloseRound(summary.round, summary.samples, round.Heldout());
  }
  if (heldout.has_value()) SetHeldout(*heldout, &summary);
  summary.total_rounds = ledger_.total_rounds();
  summary.total_samples = ledger_.trained_samples();
  summary.tokens_per_sample = ledger_.tokens_per_sample();
  summary.epoch = ledger_.epoch();
  progress_.OnRound(summary);
  summary.trained_time = progress_.trained_time();
  unrecorded_.push_back(summary);
  if (unrecorded_.size() > kMaxUnrecorded) unrecorded_.pop_front();
  return {std::move(round), std::move(summary), is_lost, replaced_by};
}

Round RoundScheduler::committed_round() const {
  if (!uses_rosters()) return Round(0);
  const bool is_one_open = !open_.empty() && !open_.begin()->second.is_evaluation();
  return is_one_open ? open_.begin()->first : ledger_.next_round();
}

int64_t RoundScheduler::rounds_done() const {
  if (uses_rosters()) return committed_round().value();
  return ledger_.next_round().value() - static_cast<int64_t>(open_.size());
}

std::vector<sync::RosterMember> RoundScheduler::EvaluationRoster(
    absl::Span<const RoundMember> members) const {
  std::vector<sync::RosterMember> roster = Waiting(members);
  if (!ledger_.LackingFor(roster).empty()) return {};
  return roster;
}

WorkLedger::Work RoundScheduler::OpenEvaluation(absl::Span<const sync::RosterMember> roster,
                                                ViewId view, absl::Time now) {
  WorkLedger::Work work = ledger_.OpenFinalEvaluation(
      view, roster, ledger_.next_round() + evaluation_attempt_, committed_round());
  Give(work, now);
  return work;
}

std::optional<ClosedRound> RoundScheduler::EndEvaluation(absl::Time now) {
  OpenRound round = std::move(open_.begin()->second);
  open_.clear();
  if (round.was_lost_from()) {
    ++evaluation_attempt_;
    return std::nullopt;
  }
  ledger_.FinishFinalEvaluation();
  return Close(std::move(round), now);
}

absl::StatusOr<messages::Grant> RoundScheduler::Extend(WorkerId worker, Round round) {
  const std::optional<messages::Grant>& grant = Of(worker).grant();
  if (!grant.has_value() || grant->round != round || grant->kind != messages::Grant::Kind::kTrain) {
    return absl::FailedPreconditionError(
        absl::StrCat("more samples were asked for in round ", round.value(),
                     ", but this worker has no training grant of that round"));
  }
  if (is_site()) {
    return absl::FailedPreconditionError(
        absl::StrCat("more samples were asked for in round ", round.value(),
                     ", but this is a site, where only the servers upstream hand out samples; give "
                     "ps.loader() the argument accumulate="));
  }
  messages::Grant more = ledger_.Extend(worker, *grant);
  assignments_[worker].OnExtended(more.num_samples);
  return more;
}

void RoundScheduler::OnRecorded(const RoundSummary& summary) {
  const auto found = std::find(unrecorded_.begin(), unrecorded_.end(), summary);
  // Rounds are recorded in order. So the rounds before this one are recorded, too.
  if (found != unrecorded_.end()) unrecorded_.erase(unrecorded_.begin(), found + 1);
}

int64_t RoundScheduler::UntrainedSamples(const job::JobSpec& job) const {
  int64_t untrained = ledger_.state().next_sample - ledger_.trained_samples();
  for (const auto& [worker, assignment] : assignments_) {
    untrained -= assignment.UnreportedSamples(job);
  }
  for (const auto& [number, round] : open_) untrained -= round.memory().samples;
  return std::max<int64_t>(untrained, 0);
}

OrderVerdict RoundScheduler::JudgeOrder(uint64_t number, bool has_failed, bool is_over) const {
  using Kind = OrderVerdict::Kind;
  if (auto outcome = site_->OutcomeOf(number); outcome.has_value()) return {Kind::kDone, *outcome};
  if (!site_->Has(number)) return {Kind::kWithdrawn};
  if (has_failed) return {Kind::kJobFailed};
  const bool is_open = !open_.empty() && site_->waiting() == nullptr;
  return {is_open || !is_over ? Kind::kUnderWay : Kind::kNotHandedOut};
}

std::optional<messages::DatasetInfo> RoundScheduler::SiteData(absl::Span<const RoundMember> members,
                                                              absl::Time now) const {
  if (sync::AwaitMembers(View(members, now).Facts()).action != sync::Action::kApply)
    return std::nullopt;
  return ledger_.SharedData();
}

sync::RoundPlan PlanForShards(const WorkLedger::Work& work) {
  sync::RoundPlan plan = work.plan;
  if (work.grants.front().kind == messages::Grant::Kind::kEvaluate) plan.roster.clear();
  return plan;
}

}  // namespace lodestar::rounds
