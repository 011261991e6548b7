// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/coordinator.h"

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/job/job_loss.h"
#include "common/runtime/overloaded.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_hints.h"
#include "common/runtime/status_macros.h"
#include "server/coordinator/admission.h"
#include "server/coordinator/cluster_words.h"
#include "server/coordinator/verdict_words.h"

namespace lodestar::coordinator {
namespace {

// A server sends its alarms and its signs of life in different calls. An alarm arrives at most this
// long before a sign of life that the server sent before it.
constexpr absl::Duration kLongestOvertaking = absl::Seconds(3);
// These functions return subjects of alarms. OtherServersSubject() is for the alarm that a worker
// came from other servers. This alarm ends with the worker's life. The alarms of LossSubject() and
// StallSubject() do not end. They have subjects because their texts differ each time.
std::string JournalSubject(int shard) { return absl::StrCat("journal of shard ", shard); }
std::string CertificateSubject(int shard) { return absl::StrCat("certificate of shard ", shard); }
std::string ServerSubject(int shard) { return absl::StrCat("server of shard ", shard); }
std::string LoadSubject(int shard) { return absl::StrCat("weights of shard ", shard); }
std::string LossSubject(int shard) { return absl::StrCat("rounds lost with shard ", shard); }
std::string StallSubject(absl::string_view worker) { return absl::StrCat("stall of ", worker); }
std::string OtherServersSubject(absl::string_view worker) {
  return absl::StrCat("worker of other servers ", worker);
}

// Ends the alarms that no server of `shard` answers or can load its weights, because one is there.
void EndServerAlarms(AlarmBook& alarms, int shard, absl::Time now) {
  alarms.End(ServerSubject(shard), now, now);
  alarms.End(LoadSubject(shard), now, now);
}

}  // namespace

Coordinator::Coordinator(Config config, model::JobModel model, absl::Time now)
    : state_(std::move(config), std::move(model), now) {}

void Coordinator::TellWait(absl::Time now) {
  if (!state_.waits.IsDue(now)) return;
  if (!state_.waits.Look(WaitingFor(state_, now, Ages::kLeftOut), WaitPatience(state_), now)) {
    return;
  }
  outbox_.Tell(absl::StrCat("cluster ", WaitingFor(state_, now)));
}

void Coordinator::Enter(CoordinatorPhase phase) {
  state_.phase = phase;
  outbox_.Touch();
  outbox_.Tell(absl::StrCat("cluster state=", StateName(state_),
                            " round=", state_.rounds.ledger().next_round().value()));
}

absl::StatusOr<messages::Registration> Coordinator::Register(const messages::RegisterCall& call,
                                                             absl::Time now) {
  absl::StatusOr<messages::Registration> answer = Admit(call, now);
  if (state_.membership.NoteAnswer(call.name, call.peer, answer.status(), now)) {
    TellRefusal(call.name, call.peer, answer.status());
  }
  return answer;
}

std::vector<uint64_t> Coordinator::shard_instances() const {
  std::vector<uint64_t> instances;
  for (const shards::ShardFleet::Server& server : state_.shards.servers()) {
    instances.push_back(server.instance_id);
  }
  return instances;
}

void Coordinator::NoteRefusal(absl::string_view name, absl::string_view peer,
                              const absl::Status& reason, absl::Time now) {
  if (state_.membership.NoteRefusal(name, peer, reason, now)) TellRefusal(name, peer, reason);
}

void Coordinator::TellRefusal(absl::string_view name, absl::string_view peer,
                              const absl::Status& reason) {
  outbox_.Tell(absl::StrCat(
      "worker refused name=", PeerText(name, membership::MembershipTable::kMaxNameBytes),
      " peer=", peer, " reason=", reason.message()));
}

absl::StatusOr<messages::Registration> Coordinator::Admit(const messages::RegisterCall& call,
                                                          absl::Time now) {
  RETURN_IF_ERROR(ModelRefusalStatus(state_, state_.model.CheckEncodings(call.encodings)));
  if (state_.is_over_for_callers()) {
    return WithJobOver(absl::FailedPreconditionError(
        absl::StrCat("the job was stopped before all servers had connected. Reason: ",
                     *state_.ending.stop_reason())));
  }
  // The servers exit. A worker that registered now would find no server that tells it of the end.
  if (state_.ending.should_exit()) return JobIsOver();
  RETURN_IF_ERROR(CheckCompared(now));
  if (state_.phase == CoordinatorPhase::kAwaitingLayout) RETURN_IF_ERROR(Adopt(call, now));
  RETURN_IF_ERROR(CheckReady(state_, now));
  if (state_.is_shard_away()) {
    return absl::UnavailableError(absl::StrCat("not ready: ", WaitingFor(state_, now),
                                               "; the call is retried automatically"));
  }
  RETURN_IF_ERROR(faults_.CheckSound(call));
  if (state_.membership.LacksAcknowledged(call, KnownReportsOf(state_, call.name))) {
    return RefuseAcknowledged(call, now);
  }
  if (const std::optional<membership::MemberAlarm> alarm =
          state_.membership.TakeFormerStart(call, state_.shards.server_incarnation());
      alarm.has_value()) {
    outbox_.RaiseAlarm(MemberAlarmText(state_, *alarm), now);
  }
  if (state_.model.lacks_supplier() && state_.phase == CoordinatorPhase::kRunning &&
      !state_.ending.is_stopping()) {
    RETURN_IF_ERROR(CheckMayClaimSupply(state_, call, now));
    RETURN_IF_ERROR(Adopt(call, now));
  }
  if (call.layout.has_value()) {
    RETURN_IF_ERROR(ModelRefusalStatus(state_, state_.model.CheckOffered(call)));
  }
  RETURN_IF_ERROR(MemberRefusalStatus(state_, state_.membership.CheckFrozen(call)));
  RETURN_IF_ERROR(CheckRoom(state_, call.name));
  RETURN_IF_ERROR(CheckMoreNames(state_, call));
  if (const std::optional<WorkerId> holder = state_.membership.GoneHolder(call, now);
      holder.has_value()) {
    DropWorker(*holder,
               "its connection is closed, and another process has registered under its name", now);
  }
  const absl::StatusOr<membership::Membership::Admitted> registered =
      state_.membership.Register(call, state_.model.map()->version, now);
  // Mostly an earlier process of the same worker has the name. When its lease ends, there may be no
  // server left to answer this worker. So this worker is told now that the job is over.
  if (absl::IsAlreadyExists(registered.status()) && state_.ends()) return JobIsOver();
  ASSIGN_OR_RETURN(const membership::Membership::Admitted admitted, registered);
  const auto& [worker, incarnation] = admitted.life;
  if (admitted.is_new_life) {
    state_.rounds.BeginLife(worker, call, admitted.is_same_process, now);
    state_.faults.BeginLife(worker, admitted.is_same_process);
    state_.stragglers.BeginLife(worker, admitted.is_same_process);
    if (admitted.alarm.has_value()) {
      outbox_.RaiseAlarm(MemberAlarmText(state_, *admitted.alarm), now, AlarmKind::kAlarm,
                         OtherServersSubject(call.name));
    }
    outbox_.Tell(absl::StrCat("worker registered name=", call.name, " worker=", worker.value(),
                              " incarnation=", incarnation.value(), " peer=", call.peer));
  }
  outbox_.Remember();
  messages::Registration answer;
  answer.life = admitted.life;
  answer.server_incarnation = state_.shards.server_incarnation();
  answer.lease = state_.config.lease;
  answer.heartbeat_interval = state_.membership.heartbeat_interval();
  answer.job = state_.model.job();
  answer.map = state_.model.map();
  answer.rounds_completed = state_.rounds.Of(worker).memory().rounds_completed;
  answer.next_round = state_.rounds.ledger().next_round();
  answer.index = state_.membership.ConnectionOf(worker).memory().index;
  answer.live_workers = state_.membership.live_workers();
  answer.needs_initial_weights = state_.model.ClaimSupply(answer.life, now);
  return answer;
}

absl::StatusOr<ViewId> Coordinator::Join(const messages::WorkerLife& life,
                                         absl::string_view layout_hash,
                                         const messages::DatasetInfo& dataset, absl::Time now) {
  RETURN_IF_ERROR(CheckCompared(now));
  RETURN_IF_ERROR(state_.membership.Renew(life, now));
  RETURN_IF_ERROR(CheckReady(state_, now));
  if (state_.membership.table().Find(life.worker)->is_member())
    return state_.membership.table().view();
  // A worker's path may carry small messages and stall on large ones. Without this rest, such a
  // worker would join and stall again at once.
  RETURN_IF_ERROR(CheckRest(state_, life.worker, now));
  // Other workers may have joined since this worker registered.
  if (const absl::Status room = CheckRoom(state_, state_.NameOf(life.worker)); !room.ok()) {
    state_.membership.NoteWaiting(state_.NameOf(life.worker),
                                  state_.membership.ConnectionOf(life.worker).peer(), room, now);
    return room;
  }
  absl::Status admitted = ModelRefusalStatus(state_, state_.model.CheckLayoutHash(layout_hash));
  admitted.Update(CheckBrings(state_, dataset));
  const int64_t heldout_samples_before = state_.rounds.ledger().num_heldout_samples();
  if (admitted.ok()) {
    const std::string name = state_.NameOf(life.worker);
    admitted = DataRefusalStatus(name, dataset, state_.rounds.Admit(life.worker, name, dataset));
  }
  if (!admitted.ok()) {
    NoteRefusal(state_.NameOf(life.worker), state_.membership.ConnectionOf(life.worker).peer(),
                admitted, now);
    return admitted;
  }
  const std::vector<rounds::RoundMember> others = state_.RoundMembers();
  RETURN_IF_ERROR(state_.membership.Join(life, now));
  state_.rounds.BeginMembership(life.worker, others, now);
  state_.model.OnJoined(life);
  outbox_.Tell(absl::StrCat(
      "worker joined name=", state_.NameOf(life.worker), " worker=", life.worker.value(), " view=",
      state_.membership.table().view().value(), " data=", dataset.own_partition ? "own" : "shared",
      dataset.fingerprint.empty() ? "" : absl::StrCat(" fingerprint=", dataset.fingerprint),
      " train_samples=", dataset.num_train_samples,
      " heldout_samples=", dataset.num_heldout_samples));
  const int64_t heldout_samples = state_.rounds.ledger().num_heldout_samples();
  const int64_t evaluated = state_.rounds.ledger().evaluation_set_size();
  if (heldout_samples != heldout_samples_before && evaluated < heldout_samples) {
    outbox_.Tell(absl::StrCat(
        "an evaluation takes ", evaluated, " of ", heldout_samples,
        " held-out samples, spread evenly; to use all of them, give the server --eval_samples=0"));
  }
  AnnounceMembers();
  outbox_.Touch();
  Advance(now);
  return state_.membership.table().view();
}

absl::StatusOr<messages::HeartbeatAnswer> Coordinator::Heartbeat(
    const messages::HeartbeatCall& call, absl::Time now) {
  RETURN_IF_ERROR(CheckCompared(now));
  // The life is checked first: a life that is over may report on shards that this job does not
  // have.
  RETURN_IF_ERROR(state_.membership.Renew(call.life, now));
  if (call.standstill.has_value() && call.standstill->shard >= state_.config.num_shards) {
    return absl::InvalidArgumentError(
        absl::StrCat("the heartbeat has standstill.shard=", call.standstill->shard,
                     ", but the cluster has only ", state_.config.num_shards, " shards"));
  }
  if (call.acknowledged.has_value() &&
      state_.rounds.Of(call.life.worker).memory().last_reported < call.acknowledged->value()) {
    return LacksReportStatus(state_, *call.acknowledged);
  }
  if (!state_.membership.OnHeartbeat(call, state_.model.map()->version)) {
    DropWorker(call.life.worker,
               "a server has another address now, so the worker must register again", now);
    return state_.membership.Check(call.life);
  }
  state_.stragglers.OnHeartbeat(call, now);
  state_.model.OnHeartbeat(call.life.worker, call.path);
  messages::HeartbeatAnswer answer;
  answer.view = state_.membership.table().view();
  answer.live_workers = state_.membership.live_workers();
  if (call.map_version.has_value() && *call.map_version != state_.model.map()->version) {
    answer.servers = messages::ServerAddresses{state_.model.map()->version, {}};
    for (const messages::ServerAddress& server : state_.model.map()->servers) {
      answer.servers->addresses.push_back(server.address);
    }
  }
  // It is usual that a round is open for up to a lease. The answer then does not say what the
  // cluster waits for.
  const bool is_usual =
      !state_.rounds.open().empty() &&
      now - state_.rounds.open().begin()->second.opened_at() < state_.config.lease;
  // The text has no durations, so it stays the same, and the worker logs it only once.
  if (!is_usual) answer.waiting_for = WaitingFor(state_, now, Ages::kLeftOut);
  return answer;
}

absl::Status Coordinator::Leave(const messages::WorkerLife& life, absl::string_view reason,
                                const std::optional<messages::RoundReport>& report,
                                absl::Time now) {
  RETURN_IF_ERROR(CheckCompared(now));
  // The worker repeats its call because the answer was lost.
  if (state_.membership.table().HasLeft(life.worker, life.incarnation)) return absl::OkStatus();
  RETURN_IF_ERROR(state_.membership.Check(life));
  // A worker may leave also if its report is refused.
  if (report.has_value()) CountReport(life.worker, *report, now).IgnoreError();
  ASSIGN_OR_RETURN(const membership::EndedLife ended, state_.membership.Leave(life, reason, now));
  EndLives({ended}, now);
  return absl::OkStatus();
}

void Coordinator::DropWorker(WorkerId worker, absl::string_view reason, absl::Time now) {
  std::optional<membership::EndedLife> ended = state_.membership.Drop(worker, reason, now);
  if (ended.has_value()) EndLives({*std::move(ended)}, now);
}

std::string Coordinator::WorkerName(WorkerId worker) const {
  const membership::WorkerRecord* const record = state_.membership.table().Find(worker);
  return record == nullptr ? "" : record->name;
}

int Coordinator::EvictWorkers(absl::FunctionRef<bool(absl::string_view name)> which,
                              absl::string_view reason, absl::Time now) {
  const std::vector<membership::EndedLife> ended = state_.membership.DropWhere(which, reason, now);
  EndLives(ended, now);
  return static_cast<int>(ended.size());
}

void Coordinator::Tick(absl::Time now) {
  LookForSilence(now);
  const bool is_over =
      state_.phase == CoordinatorPhase::kDone || state_.phase == CoordinatorPhase::kFailed;
  // Before the journals have been compared, workers can neither renew leases nor hand in reports.
  // So no worker may be dropped for that.
  if (state_.is_comparing() && !is_over) return TellWait(now);
  if (state_.checkpoints.TriesReopeningAgain(now)) Advance(now);
  EndLives(state_.membership.Expire(now), now);
  DropStalls(now);
  DropLingering(now);
  TellWait(now);
  if (saves_.IsHeldUp(now)) DropMissing(now);
  EndUnconnected(now);
}

void Coordinator::OnGap(absl::Duration gap, absl::Time now) {
  // Workers measure with their own clocks how long their transfers have stood still. These times
  // include the gap. The servers are marked as just back, so that workers are not blamed for the
  // gap.
  state_.shards.NoteBack(now);
  state_.membership.OnGap(now);
  outbox_.Tell(absl::StrCat("this process did not run for ",
                            absl::FormatDuration(absl::Trunc(gap, absl::Milliseconds(1))),
                            ", because it was stopped or its machine is overloaded; leases and "
                            "timeouts do not count that time"));
}

absl::Status Coordinator::Adopt(const messages::RegisterCall& call, absl::Time now) {
  using Kind = model::Proposal::Kind;
  const model::Proposal proposal = state_.model.Judge(call, now);
  if (proposal.kind == Kind::kNone) return absl::OkStatus();
  if (proposal.kind == Kind::kRefused) return ModelRefusalStatus(state_, proposal.refusal);
  state_.model.Take(call, proposal, now);
  state_.rounds.SetJob(state_.model.job());
  outbox_.Remember();
  if (!call.proposed.is_empty()) {
    const job::SettledJob& settled = proposal.settled;
    outbox_.Tell(absl::StrCat("settings proposed by name=",
                              PeerText(call.name, membership::MembershipTable::kMaxNameBytes),
                              " peer=", call.peer, ": used ", job::SettingsText(settled.taken),
                              settled.not_taken.empty()
                                  ? ""
                                  : absl::StrCat("; not used, because the operator decides them, ",
                                                 job::SettingsText(settled.not_taken))));
  }
  if (proposal.kind == Kind::kSame) return absl::OkStatus();
  if (state_.phase == CoordinatorPhase::kAwaitingLayout) return Assign(now);
  BeginRestoring({});
  return absl::UnavailableError(
      "not ready: the servers start again with the model of this program; the call is retried "
      "automatically");
}

void Coordinator::EndLives(std::vector<membership::EndedLife> lives, absl::Time now) {
  LetMembersRest(lives, now);
  bool view_changed = false;
  bool supplier_lost = false;
  for (const membership::EndedLife& life : lives) {
    state_.rounds.EndLife(life.id, now);
    state_.alarms.End(OtherServersSubject(life.name), now, now);
    Command(shards::DropCommand{life.id, life.incarnation, life.reason});
    outbox_.Tell(absl::StrCat("worker ended name=", life.name, " worker=", life.id.value(),
                              " incarnation=", life.incarnation.value(), " reason=", life.reason));
    view_changed |= life.was_member;
    supplier_lost |= state_.model.OnEnded({life.id, life.incarnation});
  }
  for (const WorkerId worker : state_.membership.ForgetGone()) {
    state_.rounds.Forget(worker);
    state_.faults.Forget(worker);
    state_.stragglers.Forget(worker);
  }
  if (view_changed) AnnounceMembers();
  if (!lives.empty()) outbox_.Touch();
  // All workers register again, so that another worker learns that it has to supply the weights.
  if (supplier_lost)
    return DropAll("the program that should supply the initial weights is gone", now);
  Advance(now);
}

void Coordinator::DropAll(absl::string_view reason, absl::Time now) {
  EvictWorkers([](absl::string_view) { return true; }, reason, now);
}

void Coordinator::AnnounceMembers() {
  // A shard takes no initial weights after it has got a MembersCommand. So no MembersCommand is
  // sent while the weights are awaited.
  if (!state_.model.supply().is_awaited()) Command(Members());
}

shards::MembersCommand Coordinator::Members() const {
  shards::MembersCommand command = {.view = state_.membership.table().view(), .members = {}};
  for (const membership::WorkerRecord* record : state_.membership.table().Members()) {
    command.members.push_back({record->id, record->incarnation, 0});
  }
  return command;
}

absl::StatusOr<GrantAnswer> Coordinator::RequestGrant(
    const messages::WorkerLife& life, const std::optional<messages::RoundReport>& report,
    absl::Time now, bool without_samples) {
  RETURN_IF_ERROR(CheckCompared(now));
  RETURN_IF_ERROR(state_.membership.Renew(life, now));
  if (!state_.membership.table().Find(life.worker)->is_member()) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker '", state_.NameOf(life.worker),
                     "' has registered but not joined; call Join first"));
  }
  // While the servers are not ready, the rounds since the checkpoint are lost. So the report does
  // not count.
  if (state_.is_ready()) {
    if (report.has_value()) RETURN_IF_ERROR(CountReport(life.worker, *report, now));
    if (state_.rounds.AskForWork(life.worker, without_samples)) outbox_.Remember();
    Advance(now);
  }
  return AnswerFor(life.worker);
}

absl::StatusOr<messages::Grant> Coordinator::ExtendGrant(const messages::WorkerLife& life,
                                                         Round round, absl::Time now) {
  RETURN_IF_ERROR(CheckCompared(now));
  RETURN_IF_ERROR(state_.membership.Renew(life, now));
  if (!state_.is_ready()) {
    return absl::UnavailableError(
        absl::StrCat("the servers are not ready to hand out more samples of round ", round.value(),
                     "; the call is retried automatically"));
  }
  if (job::HasLocalSteps(state_.model.job())) {
    return absl::FailedPreconditionError(
        absl::StrCat("more samples were asked for in round ", round.value(),
                     ", but only rounds of a job without local steps can be extended; report the "
                     "step as done, and ask for the next one"));
  }
  ASSIGN_OR_RETURN(messages::Grant more, state_.rounds.Extend(life.worker, round));
  outbox_.Remember();
  return more;
}

bool Coordinator::AwaitsContribution(const messages::WorkerLife& life, Round round) const {
  return state_.is_ready() && CheckLife(life).ok() &&
         state_.rounds.AwaitsContribution(life.worker, round);
}

absl::Status Coordinator::BeginLeave(const messages::WorkerLife& life, absl::Time now) {
  RETURN_IF_ERROR(CheckCompared(now));
  RETURN_IF_ERROR(state_.membership.Renew(life, now));
  state_.rounds.BeginLeave(life.worker);
  outbox_.Remember();
  return absl::OkStatus();
}

absl::StatusOr<GrantAnswer> Coordinator::PollGrant(const messages::WorkerLife& life,
                                                   absl::Time now) const {
  RETURN_IF_ERROR(CheckCompared(now));
  RETURN_IF_ERROR(state_.membership.Check(life));
  return AnswerFor(life.worker);
}

GrantAnswer Coordinator::AnswerFor(WorkerId worker) const {
  GrantAnswer answer;
  const bool is_over =
      state_.phase == CoordinatorPhase::kDone || state_.phase == CoordinatorPhase::kFailed;
  if (is_over || state_.rounds.MayLeave(worker, state_.is_ready())) {
    messages::Grant done;
    done.kind = messages::Grant::Kind::kDone;
    done.round = state_.rounds.ledger().next_round();
    done.view = state_.membership.table().view();
    done.total_rounds = state_.rounds.ledger().total_rounds();
    done.loss = state_.rounds.progress().loss();
    done.has_failed = !state_.ending.failure().ok();
    done.reason =
        is_over ? ReasonOfEnd() : "this worker wants to leave, and has no work left to deliver";
    answer.grant = std::move(done);
  } else if (state_.is_ready()) {
    answer.grant = state_.rounds.Of(worker).grant();
  }
  if (answer.grant.has_value()) answer.live_workers = state_.membership.live_workers();
  return answer;
}

std::string Coordinator::WhyNoGrant(const messages::WorkerLife& life, absl::Time now) const {
  return state_.is_ready() ? PendingReason(state_, life.worker, now)
                           : WaitingFor(state_, now, Ages::kLeftOut);
}

absl::Status Coordinator::JobIsOver() const {
  if (state_.ending.failure().ok()) {
    return WithJobOver(absl::FailedPreconditionError(ReasonOfEnd()));
  }
  return absl::FailedPreconditionError(absl::StrCat("the job has failed: ", ReasonOfEnd()));
}

std::string Coordinator::ReasonOfEnd() const {
  if (!state_.ending.failure().ok()) return std::string(state_.ending.failure().message());
  if (state_.ending.is_stopping()) return absl::StrCat("stopped: ", *state_.ending.stop_reason());
  const int64_t rounds =
      std::max(state_.rounds.ledger().total_rounds(), state_.rounds.ledger().next_round().value());
  return absl::StrCat("all ", rounds, " rounds are done");
}

absl::Status Coordinator::CountReport(WorkerId worker, const messages::RoundReport& report,
                                      absl::Time now) {
  const rounds::ReportVerdict verdict = state_.rounds.Classify(worker, report, state_.model.job());
  RETURN_IF_ERROR(ReportRefusal(report, verdict));
  if (verdict.kind == rounds::ReportVerdict::Kind::kRepeat) return absl::OkStatus();
  outbox_.Remember();
  if (const std::string odd = OddLoss(report, state_.model.job().model); !odd.empty()) {
    const messages::WorkerLife life = {worker, state_.membership.table().Find(worker)->incarnation};
    Follow(faults_.OnNotFinite(
               worker, report.round,
               absl::StrCat("the loss of worker '", state_.NameOf(worker), "' ", odd), now),
           now);
    return state_.membership.Check(life);
  }
  state_.faults.CountFinite(worker);
  faults_.LookForEqualLosses(worker, report, now);
  if (report.lost_residual_rounds > 0) {
    outbox_.Tell(absl::StrCat("worker began without its residual name=", state_.NameOf(worker),
                              " rounds_of_residual=", report.lost_residual_rounds));
  }
  const rounds::CountedReport counted =
      state_.rounds.Count(worker, report, state_.model.job(), now);
  if (counted.grant.has_value()) {
    state_.model.OnReport(worker, report, counted.grant->local_steps);
  }
  state_.stragglers.OnReport(worker, counted.grant, counted.took);
  return absl::OkStatus();
}

void Coordinator::DropStalls(absl::Time now) {
  if (state_.is_ready() && !state_.is_shard_away()) {
    Drop(state_.stragglers.PathStalls(state_.FactsOfStragglers(now), now), now);
  }
  // The facts are computed again, without the workers that were dropped just now.
  Drop(state_.stragglers.Stalls(state_.FactsOfStragglers(now), now), now);
}

void Coordinator::Drop(const std::vector<stragglers::Stall>& stalls, absl::Time now) {
  std::vector<membership::EndedLife> ended;
  for (const stragglers::Stall& stall : stalls) {
    if (!stall.IsOver(now)) continue;
    const std::string what = StallText(state_, stall, now);
    state_.stragglers.OnDropped(stall, now);
    outbox_.RaiseAlarm(HeldUpText(state_, stall, what), now, AlarmKind::kAlarm,
                       StallSubject(state_.NameOf(stall.worker)));
    const std::string held_up = stall.kind == stragglers::Stall::Kind::kPath
                                    ? absl::StrCat("round ", stall.round->value())
                                    : "other workers";
    std::optional<membership::EndedLife> life =
        state_.membership.Drop(stall.worker, absl::StrCat("held up ", held_up, ": ", what), now);
    if (life.has_value()) ended.push_back(*std::move(life));
  }
  if (!ended.empty()) EndLives(ended, now);
}

void Coordinator::LetMembersRest(std::vector<membership::EndedLife>& lives, absl::Time now) {
  std::vector<stragglers::WorkerFacts> ended;
  for (const membership::EndedLife& life : lives) ended.push_back(state_.FactsOf(life.id));
  for (const WorkerId resting :
       state_.stragglers.OnEnded(ended, state_.FactsOfStragglers(now), now)) {
    std::optional<membership::EndedLife> life = state_.membership.Drop(
        resting,
        absl::StrCat("certificate '", state_.membership.ConnectionOf(resting).identity(),
                     "' must wait, because other workers waited for one of its workers"),
        now);
    if (life.has_value()) lives.push_back(*std::move(life));
  }
}

void Coordinator::LookForStraggler() {
  job::JobSpec balanced = state_.model.job();
  balanced.balance = job::Balance::kSpeed;
  const bool waits_for_all = state_.rounds.uses_rosters() && balanced.quorum == 0;
  if (!waits_for_all || state_.model.job().balance == job::Balance::kSpeed ||
      state_.rounds.is_site()) {
    return;
  }
  std::vector<stragglers::StragglerWatch::Member> members;
  for (const membership::WorkerRecord* member : state_.membership.table().Members()) {
    members.push_back({member->name, state_.rounds.Of(member->id).compute_speed()});
  }
  const stragglers::StragglerWatch::Straggler straggler = state_.stragglers.OnRound(members);
  if (straggler.name.empty()) return;
  outbox_.Tell(
      absl::StrCat("rounds wait for worker '", straggler.name, "': it computes ",
                   absl::StrFormat("%.3g samples/s, and the other workers %.3g; ", straggler.speed,
                                   straggler.usual_speed),
                   job::ValidateJobSpec(balanced).ok()
                       ? "start the servers with --balance=speed, which divides samples by speed"
                       : "for help, see docs/howto/unequal_workers.md"));
}

// Drops workers that are still there some time after the end of the job. Their heartbeats alone
// would keep the servers from exiting. A worker with a grant may take the time that its report
// needs. A worker without a grant gets a short fixed time to leave.
void Coordinator::DropLingering(absl::Time now) {
  if (now < state_.ending.over_since()) return;
  // The workers are collected first, because DropWorker() may erase workers from the table.
  std::vector<WorkerId> lingering;
  for (const auto& [id, record] : state_.membership.table().workers()) {
    if (record.is_alive() && now >= LeavesBy(id)) lingering.push_back(id);
  }
  for (WorkerId worker : lingering) {
    DropWorker(worker, "the job is over, and the worker did not leave", now);
  }
}

absl::Time Coordinator::LeavesBy(WorkerId id) const {
  const stragglers::WorkerFacts worker = state_.FactsOf(id);
  if (worker.grant == nullptr) return state_.ending.LeavesBy(std::nullopt);
  const absl::Time since = std::max(worker.given_at, state_.shards.back_at());
  return state_.ending.LeavesBy(
      state_.stragglers.ReportDueAt(worker, since, state_.rounds.progress().usual_round()));
}

void Coordinator::Advance(absl::Time now) {
  while (AdvanceOnce(now)) {
  }
}

bool Coordinator::AdvanceOnce(absl::Time now) {
  const bool is_over =
      state_.phase == CoordinatorPhase::kDone || state_.phase == CoordinatorPhase::kFailed;
  if (state_.is_comparing() && !is_over) return false;
  switch (state_.phase) {
    case CoordinatorPhase::kLoading:
      return AdvanceLoading(now);
    case CoordinatorPhase::kRunning:
      return !state_.is_shard_away() && AdvanceTraining(now);
    case CoordinatorPhase::kEvaluating:
      return !state_.is_shard_away() && AdvanceEvaluation(now);
    case CoordinatorPhase::kSaving:
      return !state_.is_shard_away() && AdvanceSaving(now);
    case CoordinatorPhase::kDone:
      return AdvanceDone(now);
    case CoordinatorPhase::kFailed:
      return state_.Returning(now).empty() && AdvanceFailed(now);
    default:
      return false;
  }
}

bool Coordinator::AdvanceTraining(absl::Time now) {
  if (CloseRounds(now) || saves_.SaveCompleteRounds(now)) return true;
  if (state_.rounds.uses_rosters() && !state_.rounds.open().empty()) return false;
  if (IsTrialOver()) return ChooseExchangeSettings(now);
  // When work ends, some members may still have a deferred contribution to hand in. They get one
  // more round for it, in which they compute nothing. If that round cannot be opened now, the job
  // does not wait for these contributions.
  const bool ends_work =
      state_.ending.is_stopping() || state_.ending.is_work_held() || state_.ending.is_paused();
  if (ends_work && state_.rounds.OwesContribution(state_.RoundMembers()) &&
      GrantNext(rounds::WorkLedger::Computes::kNo, now)) {
    return true;
  }
  if (state_.ending.is_stopping() ||
      (!state_.rounds.is_site() && state_.rounds.ledger().is_exhausted())) {
    if (!state_.rounds.open().empty()) return false;
    Enter(state_.ending.is_stopping() ? CoordinatorPhase::kSaving : CoordinatorPhase::kEvaluating);
    return true;
  }
  if (state_.ending.is_work_held()) return state_.rounds.open().empty() && AdvanceLastSave(now);
  if (state_.model.supply().is_awaited()) return false;
  saves_.BeginIfDue(now);
  if (state_.ending.is_paused() || !state_.rounds.has_next_round()) return false;
  return GrantNext(rounds::WorkLedger::Computes::kYes, now);
}

bool Coordinator::IsTrialOver() const {
  if (state_.ending.is_stopping()) return false;
  std::vector<WorkerId> members;
  for (const membership::WorkerRecord* member : state_.membership.table().Members()) {
    members.push_back(member->id);
  }
  return state_.model.IsTrialOver(members, state_.rounds.ledger().max_roster());
}

// All servers and workers start over with the settings that the trial has chosen, as after a
// rollback.
bool Coordinator::ChooseExchangeSettings(absl::Time now) {
  if (const absl::Status chosen = state_.model.ChooseExchange(); !chosen.ok()) {
    Fail(absl::Status(chosen.code(), absl::StrCat("the job cannot choose its exchange settings: ",
                                                  chosen.message())),
         now);
    return true;
  }
  outbox_.Tell(absl::StrCat("exchange chosen: ", ExchangeText(state_)));
  BeginRestoring({});
  return true;
}

bool Coordinator::AdvanceEvaluation(absl::Time now) {
  if (!state_.rounds.open().empty()) {
    if (!state_.rounds.open().begin()->second.Missing().empty()) {
      return saves_.SaveCompleteRounds(now);
    }
    if (const std::optional<rounds::ClosedRound> closed = state_.rounds.EndEvaluation(now);
        closed.has_value()) {
      TellClosed(*closed, now);
    } else {
      outbox_.Tell("final evaluation is repeated: a worker was lost during it");
    }
    outbox_.Touch();
    return true;
  }
  if (state_.ending.is_stopping() || !state_.rounds.ledger().needs_final_evaluation()) {
    state_.ending.EndPause();  // a pause has no effect any more
    Enter(CoordinatorPhase::kSaving);
    return true;
  }
  if (state_.ending.is_work_held()) return AdvanceLastSave(now);
  if (state_.ending.is_paused()) {
    saves_.BeginIfDue(now);
    return false;
  }
  const std::vector<sync::RosterMember> roster =
      state_.rounds.EvaluationRoster(state_.RoundMembers());
  if (roster.empty() || AwaitsReopening()) return false;
  OnGiven(state_.rounds.OpenEvaluation(roster, state_.membership.table().view(), now));
  return true;
}

bool Coordinator::CloseRounds(absl::Time now) {
  if (state_.rounds.open().empty()) return false;
  const std::vector<rounds::ClosedRound> closed =
      state_.rounds.CloseOver(state_.RoundMembers(), now);
  for (const rounds::ClosedRound& round : closed) TellClosed(round, now);
  return !closed.empty();
}

void Coordinator::TellClosed(const rounds::ClosedRound& closed, absl::Time now) {
  const rounds::OpenRound& round = closed.round;
  const rounds::RoundSummary& summary = closed.summary;
  outbox_.Touch();
  if (state_.rounds.uses_rosters() && !round.is_evaluation() && round.reported() > 0) {
    outbox_.Command(shards::CloseRoundCommand{round.round(), round.Reported()});
  }
  if (closed.is_lost) {
    outbox_.Tell(absl::StrCat("round ", summary.round.value(),
                              " ended without a contribution, because all its workers had left or "
                              "were dropped. It is replaced by round ",
                              closed.replaced_by.value()));
  } else if (summary.committed_short) {
    outbox_.Tell(absl::StrCat("round ", summary.round.value(), " was completed with ",
                              summary.workers, " of ", round.plan().roster.size(), " workers; ",
                              summary.samples, " samples counted"));
  }
  if (!closed.is_lost && !round.is_evaluation()) {
    faults_.LookForFewSenders(round, summary.workers, now);
    LookForStraggler();
  }
  if (closed.is_announced) outbox_.Announce(summary);
}

// Opens the next round for the members that wait for work and may take part.
bool Coordinator::GrantNext(rounds::WorkLedger::Computes computes, absl::Time now) {
  const std::vector<rounds::RoundMember> members = state_.RoundMembers();
  const std::vector<sync::RosterMember> roster = state_.rounds.NextRoster(members, now);
  if (roster.empty() || AwaitsReopening()) return false;
  const rounds::WorkLedger::Work work =
      state_.rounds.OpenNext(roster, members, state_.membership.table().view(), computes, now);
  if (state_.rounds.uses_rosters())
    outbox_.Command(shards::OpenRoundCommand{rounds::PlanForShards(work)});
  OnGiven(work);
  return true;
}

void Coordinator::OnGiven(const rounds::WorkLedger::Work& work) {
  for (const sync::RosterMember& member : work.plan.roster)
    state_.stragglers.OnGrant(member.worker);
  outbox_.Touch();
}

std::optional<messages::DatasetInfo> Coordinator::SiteData(absl::Time now) const {
  if (state_.phase != CoordinatorPhase::kRunning) return std::nullopt;
  return state_.rounds.SiteData(state_.RoundMembers(), now);
}

void Coordinator::OnShardEvent(int shard, const shards::ShardEvent& event, absl::Time now) {
  const uint64_t incarnation = state_.shards.server_incarnation();
  std::visit(
      Overloaded{
          [&](const shards::ShardLoaded& loaded) { OnLoaded(shard, loaded, now); },
          [&](const shards::ShardSaved& saved) {
            FailUnlessOk(saves_.OnShardSaved(shard, saved, now), now);
            Advance(now);
          },
          [&](const shards::ShardSquareSums& square_sums) {
            if (!state_.shards.Counts(shard, square_sums.server_incarnation)) return;
            outbox_.Remember();
            const Round round = square_sums.round;
            const std::optional<double> total =
                state_.shards.AddSquareSums(shard, round, square_sums.sums);
            if (total.has_value()) Command(shards::NormTotalCommand{round, *total});
          },
          [&](const shards::ShardDiverged& diverged) {
            if (diverged.server_incarnation != incarnation) return;
            Follow(faults_.OnShardDiverged(shard, diverged.round, diverged.text, now), now);
          },
          [&](const shards::ShardFailing& failing) {
            if (!state_.is_ready() || failing.server_incarnation != incarnation) return;
            const absl::Status& error = failing.error;
            FailOnceSaved(
                absl::Status(error.code(), absl::StrCat("shard ", shard, ": ", error.message())),
                now);
          },
          [&](const shards::ShardConnections& connections) {
            OnConnections(shard, connections, now);
          },
          [&](const shards::ShardAlarm& alarm) { OnAlarm(shard, alarm, now); },
          [&](const shards::ShardExiting&) { state_.ending.OnExiting(shard); },
          [&](const sync::WorkerFault& fault) { Follow(faults_.OnWorkerFault(fault, now), now); },
      },
      event);
}

void Coordinator::Follow(const FaultVerdict& verdict, absl::Time now) {
  switch (verdict.kind) {
    case FaultVerdict::Kind::kNothing:
      return;
    case FaultVerdict::Kind::kDrop:
      return DropWorker(verdict.worker, verdict.reason, now);
    case FaultVerdict::Kind::kShutOut:
      EvictWorkers(
          [this](absl::string_view name) {
            return state_.faults.quarantine().Find(name) != nullptr;
          },
          verdict.reason, now);
      return;
    case FaultVerdict::Kind::kGoBack:
      BeginRestoring({});
      return;
    case FaultVerdict::Kind::kEnd:
      Enter(CoordinatorPhase::kDone);
      return Advance(now);
  }
}

absl::Status Coordinator::Evict(absl::string_view name, absl::string_view reason, absl::Time now) {
  ASSIGN_OR_RETURN(const FaultVerdict verdict, faults_.Evict(name, reason, now));
  Follow(verdict, now);
  return absl::OkStatus();
}

absl::StatusOr<std::string> Coordinator::EvictWithCertificate(absl::string_view name,
                                                              absl::string_view reason,
                                                              absl::Time now) {
  ASSIGN_OR_RETURN(std::string certificate, faults_.CertificateOf(name));
  ASSIGN_OR_RETURN(const FaultVerdict verdict, faults_.EvictCertificate(certificate, reason, now));
  Follow(verdict, now);
  return certificate;
}

absl::Status Coordinator::Readmit(absl::string_view name, absl::Time now) {
  RETURN_IF_ERROR(faults_.Readmit(name, now));
  Advance(now);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Coordinator::RollBack(Round round, absl::string_view why, absl::Time now) {
  const int64_t rounds_done = state_.rounds.rounds_done();
  ASSIGN_OR_RETURN(const FaultVerdict verdict, faults_.RollBack(round, why, now));
  Follow(verdict, now);
  return rounds_done;
}

bool Coordinator::GoesOn(int shard, uint64_t instance_id, uint64_t memory_of) const {
  return state_.shards.GoesOn(shard, instance_id, memory_of, state_.has_memory());
}

absl::Status Coordinator::OnShardAttached(int shard, int num_shards, uint64_t instance_id,
                                          uint64_t memory_of, absl::string_view address,
                                          absl::Time now, shards::JournalPlace journal) {
  const shards::Attachment attachment = {shard,     num_shards, instance_id,
                                         memory_of, address,    journal};
  shards::AttachFacts facts = {.has_memory = state_.has_memory(),
                               .is_comparing = state_.is_comparing(),
                               .is_resumed = state_.comparison.is_resumed,
                               .is_ready = state_.is_ready()};
  if (state_.model.map() != nullptr && state_.shards.Has(shard)) {
    facts.address_in_map = state_.model.map()->servers[shard].address;
  }
  using Kind = shards::AttachVerdict::Kind;
  const shards::AttachVerdict verdict = state_.shards.JudgeAttach(attachment, facts);
  // The server has not heard that the job is over, or was started after the end.
  if (state_.ending.should_exit() && verdict.kind != Kind::kDoesNotFit) {
    outbox_.Repeat(shard, shards::StopCommand{std::string(state_.ending.failure().message())});
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(AttachRefusal(state_, attachment, verdict.kind));
  if (verdict.kind == Kind::kGoesOn) return GoOnWith(attachment, verdict, now);
  if (verdict.kind == Kind::kLoses) StartOver(shard, verdict.loss, now);
  if (verdict.kind == Kind::kLosesUntold) {
    state_.shards.LoseUntold(shard, verdict.loss, now);
    outbox_.Tell(absl::StrCat("shard lost shard=", shard));
  }
  state_.shards.Attach(attachment, now);
  EndServerAlarms(state_.alarms, shard, now);
  outbox_.Tell(absl::StrCat("shard attached shard=", shard, " address=", address));
  if (state_.is_comparing()) {
    CompareOnceAllAttached(now);
  } else if (state_.phase == CoordinatorPhase::kAwaitingShards && state_.shards.all_attached()) {
    BeginRestoring({});
  }
  return absl::OkStatus();
}

absl::Status Coordinator::GoOnWith(const shards::Attachment& attachment,
                                   const shards::AttachVerdict& verdict, absl::Time now) {
  const int shard = attachment.shard;
  // The server may connect again before the end of its old connection is noticed.
  if (state_.shards.Disconnect(shard, now)) OnShardAway(shard, now);
  outbox_.Tell(
      absl::StrCat("shard connected again shard=", shard, " address=", attachment.address));
  state_.shards.GoOn(attachment, now);
  state_.rounds.OnServerAttached(shard);
  // A server that was started again with its journal may have another address.
  if (verdict.has_moved) {
    RETURN_IF_ERROR(state_.model.MoveServers(state_.shards.addresses(), now));
    outbox_.Remember();
  }
  if (!state_.is_comparing()) RepeatCommands(shard);
  OnShardBack(shard, now);
  // Usually the event ShardLoaded leads to ForgetStop(). A new process that goes on with its memory
  // may not send that event.
  if (verdict.is_another_process) ForgetStop(shard, now);
  return absl::OkStatus();
}

void Coordinator::RepeatCommands(int shard) {
  const auto repeat = [&](shards::ShardCommand command) {
    outbox_.Repeat(shard, std::move(command));
  };
  // Open rounds are sent before the members. A push may wait on the server until the members come.
  // If the server did not know the push's round by then, it would refuse the push as too far ahead.
  for (const auto& [number, round] : state_.rounds.open()) {
    if (state_.rounds.uses_rosters() && !round.is_evaluation()) {
      repeat(shards::OpenRoundCommand{round.plan()});
    }
  }
  if (!state_.model.supply().is_awaited()) repeat(Members());
  for (const auto& [id, record] : state_.membership.table().workers()) {
    if (!record.is_alive()) repeat(shards::DropCommand{id, record.incarnation, record.end_reason});
  }
  for (const auto& [round, total] : state_.shards.norm_totals()) {
    repeat(shards::NormTotalCommand{round, total});
  }
  if (state_.shards.published().has_value()) repeat(*state_.shards.published());
}

void Coordinator::OnShardDisconnected(int shard, uint64_t instance_id, absl::Time now) {
  if (state_.ending.should_exit() || !state_.shards.IsHeldBy(shard, instance_id)) return;
  if (!state_.has_memory()) return StartOver(shard, {shards::ShardLoss::Kind::kCutOff}, now);
  if (state_.shards.Disconnect(shard, now)) OnShardAway(shard, now);
}

void Coordinator::OnShardHeard(int shard, uint64_t instance_id, absl::Time now) {
  if (state_.shards.Hear(shard, instance_id, now)) OnShardBack(shard, now);
}

void Coordinator::OnJournalState(int shard, shards::JournalState journal, absl::Time now) {
  if (!state_.shards.Has(shard)) return;
  if (journal.trouble.empty()) {
    state_.alarms.End(JournalSubject(shard), now - kLongestOvertaking, now);
  }
  const int64_t bytes = journal.bytes;
  state_.shards.SetJournal(shard, std::move(journal));
  if (saves_.OnJournalSize(shard, bytes, now)) Advance(now);
}

void Coordinator::OnPushSpace(int shard, const sync::PushSpace& space, absl::Time now) {
  if (!state_.shards.Has(shard)) return;
  for (const auto& [worker, record] : state_.membership.table().workers()) {
    if (!record.is_alive()) continue;
    state_.stragglers.OnPushSpace(shard, space, {worker, record.incarnation}, now);
  }
}

void Coordinator::OnAlarm(int shard, const shards::ShardAlarm& alarm, absl::Time now) {
  std::string subject;
  switch (alarm.ends) {
    case shards::ShardAlarm::Ends::kWithJournalTrouble:
      subject = JournalSubject(shard);
      break;
    case shards::ShardAlarm::Ends::kWithNextOfCertificate:
      subject = CertificateSubject(shard);
      outbox_.Touch();
      state_.alarms.End(subject, now, now);
      break;
    case shards::ShardAlarm::Ends::kNever:
      break;
  }
  if (alarm.text.empty()) return;
  outbox_.RaiseAlarm(absl::StrCat("shard ", shard, ": ", alarm.text), now, AlarmKind::kAlarm,
                     subject);
}

void Coordinator::OnShardAway(int shard, absl::Time now) {
  outbox_.Touch();
  outbox_.Tell(absl::StrCat("shard away shard=", shard));
  saves_.OnShardAway(shard, now);
  Advance(now);
}

void Coordinator::OnShardBack(int shard, absl::Time now) {
  outbox_.Touch();
  EndServerAlarms(state_.alarms, shard, now);
  outbox_.Tell(absl::StrCat("shard back shard=", shard));
  if (state_.is_comparing()) return CompareOnceAllAttached(now);
  saves_.OnShardBack(now);
  Advance(now);
}

void Coordinator::LookForSilence(absl::Time now) {
  if (state_.ending.should_exit() || !state_.has_memory()) return;
  for (const int shard : state_.shards.MarkSilent(now)) OnShardAway(shard, now);
  for (const int shard : state_.shards.StillAway(now)) {
    FailUnlessOk(saves_.OnStillAway(shard, now), now);
    if (!state_.shards.MarkTold(shard)) continue;
    outbox_.RaiseAlarm(
        absl::StrCat(
            "the server of shard ", shard, " at ", state_.shards.servers()[shard].address,
            " does not answer, and training waits for it. If its process is gone, start it again; "
            "then the job continues from that server's journal, or from the newest checkpoint"),
        now, AlarmKind::kAlarm, ServerSubject(shard));
  }
}

std::string Coordinator::WayBack() const {
  if (!state_.has_memory()) return "the cluster waits until that server connects again";
  if (!state_.is_ready()) return "all servers load their weights again";
  if (const auto& last = state_.checkpoints.tracker().last(); last.has_value()) {
    return absl::StrCat("all servers go back to the checkpoint of round ", last->round.value(),
                        ", or to an older one if that one is damaged");
  }
  return "all servers go back to the first weights, because there is no checkpoint";
}

void Coordinator::StartOver(int shard, const shards::ShardLoss& loss, absl::Time now) {
  state_.shards.Lose(shard, now);
  outbox_.Tell(absl::StrCat("shard lost shard=", shard));
  GoBackWithout(shard, ShardLossText(state_, loss), now);
}

void Coordinator::GoBackWithout(int shard, absl::string_view what, absl::Time now) {
  // A job that is done and saves no checkpoints stays done: there is no checkpoint to return to.
  const bool stays_done = state_.phase == CoordinatorPhase::kDone && !state_.saves();
  if (stays_done || state_.phase == CoordinatorPhase::kFailed ||
      state_.phase == CoordinatorPhase::kAwaitingShards) {
    return;
  }
  const std::string why = absl::StrCat("the server of shard ", shard, " ", what);
  // If rounds were lost, the alarm does not end. Otherwise it ends when a server of this shard is
  // back.
  const std::string subject = state_.is_ready() ? LossSubject(shard) : ServerSubject(shard);
  outbox_.RaiseAlarm(absl::StrCat(why, "; ", WayBack()), now, AlarmKind::kAlarm, subject);
  if (state_.is_ready()) {
    const std::optional<faults::Setback>& last = state_.faults.setback();
    const int64_t before = last.has_value() ? last->rounds_done : 0;
    state_.faults.SetBack({std::max(before, state_.rounds.rounds_done()), why});
  }
  const std::string lost =
      absl::StrCat("the weights of shard ", shard, " were lost before the checkpoint was complete");
  saves_.GiveUp(absl::UnavailableError(lost));
  if (state_.checkpoints.last_save().is_begun()) {
    FailUnlessOk(saves_.EndLast(absl::DataLossError(lost)), now);
  }
  // If a server had reported that it cannot go on, EndLast() has ended the job.
  if (state_.phase == CoordinatorPhase::kFailed) return Advance(now);
  state_.rounds.DropOpen();
  Enter(CoordinatorPhase::kAwaitingShards);
}

bool Coordinator::OnContributed(int shard, uint64_t server_incarnation,
                                const messages::WorkerLife& life, Round round) {
  if (server_incarnation != state_.shards.server_incarnation() || !CheckLife(life).ok()) {
    return false;
  }
  return state_.rounds.OnContributed(shard, life.worker, round);
}

void Coordinator::OnRestoreChosen(const absl::StatusOr<RestoreChoice>& choice, absl::Time now) {
  if (state_.phase != CoordinatorPhase::kRestoring) return;
  const absl::Status restored = choice.ok() ? Restore(*choice, now) : choice.status();
  if (restored.ok()) return;
  // No checkpoint could be restored, so the loss is not accepted. The shards keep their memory,
  // because the operator may still bring the newer journal back.
  if (state_.comparison.is_accepted) state_.comparison.is_over = false;
  Fail(restored, now);
  outbox_.RaiseAlarm(state_.ending.failure().message(), now);
  Advance(now);
}

absl::Status Coordinator::Restore(const RestoreChoice& choice, absl::Time now) {
  if (!choice.alarm.empty()) outbox_.RaiseAlarm(choice.alarm, now);
  RETURN_IF_ERROR(state_.model.Restore({.job = choice.job,
                                        .layout = choice.layout,
                                        .is_from_checkpoint = choice.state.has_value()}));
  checkpoints::CoordinatorState saved;
  saved.membership = state_.membership.table().Export();
  Incarnation last_life = saved.membership.last_incarnation;
  if (choice.state.has_value()) saved = *choice.state;
  last_life = std::max(last_life, saved.membership.last_incarnation);
  // Only a new process uses the orders in the checkpoint. A process that went back to a checkpoint
  // has newer orders.
  const bool is_new_process = state_.shards.server_incarnation() == 0;
  if (is_new_process) state_.TakeOrders(saved.orders, now);
  const checkpoints::CoordinatorState on_disk = saved;
  faults::FaultPolicy::Memory faults = state_.faults.memory();
  if (is_new_process) {
    faults.rollbacks = saved.ledger.rollbacks;
    faults.learning_rate_scale = saved.ledger.learning_rate_scale;
    faults.scale_by_operators = saved.ledger.scale_by_operators;
    state_.faults.Resume(faults);
  }
  saved.ledger.rollbacks = faults.rollbacks;
  saved.ledger.learning_rate_scale = faults.learning_rate_scale;
  saved.ledger.scale_by_operators = faults.scale_by_operators;
  state_.shards.BeginIncarnation(
      std::max({choice.server_incarnation, saved.server_incarnation + 1, last_life.value() + 1}));
  membership::Membership::Start start = {.server_incarnation = state_.shards.server_incarnation(),
                                         .empty_folder = choice.empty_folder};
  if (is_new_process && choice.state.has_value() && !state_.comparison.is_accepted) {
    start.beginning = {.saved_by = on_disk.server_incarnation,
                       .server_incarnation = state_.shards.server_incarnation(),
                       .next_round = on_disk.ledger.next_round};
  }
  const auto* checkpoint = std::get_if<shards::CheckpointSource>(&choice.source);
  state_.checkpoints.SetComplete(choice.is_complete && checkpoint != nullptr ? checkpoint->directory
                                                                             : "");
  // A lost coordinator may have begun lives after its last checkpoint. This process does not know
  // them. The new incarnation of the servers is based on time, so it is above the incarnations of
  // those lives.
  RETURN_IF_ERROR(state_.membership.Restore(saved.membership, std::move(start), now));
  state_.rounds.Restore(state_.model.job(), saved.ledger, saved.progress);
  state_.faults.ForgetWorkers();
  state_.stragglers.ForgetWorkers();
  state_.shards.ForgetRounds();
  state_.model.BeginFrom(choice.source, choice.resumed);
  saves_.Restart(on_disk, now);
  const bool is_rate_on_disk = faults.learning_rate_scale == on_disk.ledger.learning_rate_scale;
  if (state_.orders() != on_disk.orders || !is_rate_on_disk) saves_.OnOrdersChanged(now);
  if (!choice.note.empty()) outbox_.Tell(choice.note);
  if (state_.ending.is_paused()) outbox_.Tell(PauseText(state_));
  if (const std::optional<faults::Setback> setback = state_.faults.setback();
      setback.has_value() && setback->order.has_value()) {
    const std::optional<int64_t> reached =
        choice.state.has_value() ? std::optional(state_.rounds.rounds_done()) : std::nullopt;
    state_.faults.SetBack({setback->rounds_done, SentBackText(*setback->order, reached)});
    outbox_.RaiseAlarm(LostText(state_), now);
  } else if (const std::string lost = LostText(state_); !lost.empty()) {
    outbox_.Tell(lost);
  }
  if (!state_.rounds.is_site() && state_.rounds.ledger().is_exhausted() &&
      !state_.rounds.ledger().needs_final_evaluation()) {
    outbox_.Tell(absl::StrCat(
        "the job is already complete, at round ",
        job::RoundOfText(state_.rounds.ledger().next_round().value(),
                         state_.rounds.ledger().total_rounds(), " of "),
        ". To continue, give a larger --rounds; to start again, give --resume=never. This server ",
        state_.config.exit_when_done
            ? "ends now, because of --exit_when_done"
            : "serves the weights (psctl export) until psctl stop or Ctrl-C"));
  }
  const int64_t next_round = state_.rounds.ledger().next_round().value();
  outbox_.Announce(
      RestoredPoint{state_.rounds.ledger().next_round(), state_.rounds.ledger().trained_samples(),
                    state_.rounds.ledger().state().final_evaluation_round == next_round,
                    state_.rounds.uses_rosters(),
                    /*is_from_journal=*/false,
                    /*last_rounds=*/{}, state_.rounds.progress().loss()});
  if (!state_.model.layout().has_value()) {
    Enter(CoordinatorPhase::kAwaitingLayout);
    return absl::OkStatus();
  }
  return Assign(now);
}

absl::Status Coordinator::Assign(absl::Time now) {
  RETURN_IF_ERROR(state_.model.PlanMap(/*version=*/0, state_.shards.addresses()));
  outbox_.Announce(DecidedJob{state_.model.job()});
  state_.shards.MarkLoading(now);
  Enter(CoordinatorPhase::kLoading);
  shards::AssignCommand command = {
      .server_incarnation = state_.shards.server_incarnation(),
      .job = state_.model.job(),
      .map = state_.model.map(),
      .source = state_.model.source(),
      .folder = {state_.config.checkpoint_dir, state_.config.folder_claim_id},
      .life_key = state_.membership.life_key()};
  // With rates of programs the plan of a round has the scale, relative to the peak.
  if (command.job.schedule.kind != job::ScheduleKind::kProgram) {
    const double learning_rate_scale = state_.rounds.ledger().state().learning_rate_scale;
    command.job.schedule.peak *= learning_rate_scale;
    command.job.schedule.minimum *= learning_rate_scale;
  }
  outbox_.Command(std::move(command));
  return absl::OkStatus();
}

void Coordinator::OnLoaded(int shard, const shards::ShardLoaded& loaded, absl::Time now) {
  if (!state_.shards.Counts(shard, loaded.server_incarnation)) return;
  const absl::Status& status = loaded.status;
  if (state_.phase != CoordinatorPhase::kLoading) {
    if (status.ok()) ForgetStop(shard, now);
    return;
  }
  if (!status.ok()) {
    const std::string failure =
        absl::StrCat("shard ", shard, " could not load its weights: ", status.message());
    if (state_.shards.IsReplaceable(shard)) return ReplaceServer(shard, failure, now);
    Fail(absl::Status(status.code(), failure), now);
    outbox_.RaiseAlarm(state_.ending.failure().message(), now);
    return Advance(now);
  }
  state_.shards.MarkServing(shard, now);
  Advance(now);
}

void Coordinator::ReplaceServer(int shard, const std::string& failure, absl::Time now) {
  const shards::ShardFleet::Server& server = state_.shards.servers()[shard];
  outbox_.RaiseAlarm(absl::StrCat(failure, ". The job waits for a server of shard ", shard,
                                  " that can load them. Solve the problem on the machine of ",
                                  server.address, ", and start that server again"),
                     now, AlarmKind::kAlarm, LoadSubject(shard));
  outbox_.Repeat(shard, shards::StopCommand{failure, server.instance_id});
  StartOver(shard, {shards::ShardLoss::Kind::kCannotLoad}, now);
}

// A new process of the server has replaced a process that was about to exit and waited for the last
// save. The last save does not have to serve that process any more.
void Coordinator::ForgetStop(int shard, absl::Time now) {
  if (state_.phase != CoordinatorPhase::kLoading && state_.phase != CoordinatorPhase::kRunning &&
      state_.phase != CoordinatorPhase::kEvaluating) {
    return;
  }
  if (saves_.ForgetAsker(ReasonOfStop(shard))) Advance(now);
}

bool Coordinator::AdvanceLoading(absl::Time now) {
  if (!state_.shards.FinishLoading()) return false;
  state_.checkpoints.StartSchedule(state_.rounds.ledger().next_round(), now);
  state_.rounds.GatherMembers(now);
  Enter(CoordinatorPhase::kRunning);
  return true;
}

void Coordinator::FailOnceSaved(const absl::Status& failure, absl::Time now) {
  outbox_.RaiseAlarm(failure.message(), now);
  if (!state_.ending.FailOnceSaved(failure)) return;
  BeginLastSave(failure.message(), state_.config.stop_timeout, now);
}

void Coordinator::OnUpstreamEnd(const absl::Status& outcome, absl::Time now) {
  if (outcome.ok() || state_.ending.is_stopping()) {
    return RequestStop("the job upstream is over", now);
  }
  if (!state_.ending.failure().ok()) return;  // this failure has ended the uplink
  if (!state_.is_ready()) return Fail(outcome, now);
  FailOnceSaved(outcome, now);
}

absl::StatusOr<uint64_t> Coordinator::RequestCheckpoint(absl::Time now) {
  const absl::StatusOr<uint64_t> ticket = saves_.Request(now);
  Advance(now);
  return ticket;
}

void Coordinator::RequestStop(absl::string_view reason, absl::Time now) {
  // A job that is stopping, is over or has failed needs no stop request.
  if (state_.ending.is_stopping() || state_.ending.should_exit() ||
      state_.phase == CoordinatorPhase::kFailed) {
    return;
  }
  state_.ending.RequestStop(reason, now);
  outbox_.Tell(absl::StrCat("stop requested: ", reason));
  outbox_.Touch();
  // The stop waits for the comparison. If the comparison shows that the journal has lost nothing,
  // the rounds in the journal can be saved.
  const bool waits_for_comparison =
      state_.is_comparing() && state_.comparison.is_resumed && !state_.comparison.loss.has_value();
  if (waits_for_comparison) return;
  if (!state_.is_ready()) {
    EndWithoutSaving(now);
  } else if (state_.phase == CoordinatorPhase::kDone) {
    state_.checkpoints.BeginLast(/*gives_up=*/true, now);
  }
  Advance(now);
}

void Coordinator::EndWithoutSaving(absl::Time now) {
  FailUnlessOk(saves_.EndLast(absl::FailedPreconditionError(WaitingFor(state_, now))), now);
  state_.rounds.GatherMembers(now);
  Enter(CoordinatorPhase::kDone);
}

void Coordinator::BeginLastSave(absl::string_view reason, absl::Duration patience, absl::Time now) {
  FailUnlessOk(saves_.BeginLast(reason, patience, now), now);
  Advance(now);
}

// Drops the workers that hold up the last save. Their contributions are lost, and the open rounds
// are closed without them.
void Coordinator::DropMissing(absl::Time now) {
  const std::string reason = saves_.HeldUpReason();
  std::vector<membership::EndedLife> ended;
  std::vector<ending::MissedReport> missed;
  for (const auto& [number, round] : state_.rounds.open()) {
    for (WorkerId worker : round.Missing()) {
      std::optional<membership::EndedLife> life = state_.membership.Drop(worker, reason, now);
      if (!life.has_value()) continue;
      missed.push_back({life->name, number});
      ended.push_back(*std::move(life));
    }
  }
  state_.ending.OnDropped(missed);
  EndLives(ended, now);
}

void Coordinator::Fail(const absl::Status& status, absl::Time now) {
  state_.ending.Fail(status);
  Enter(CoordinatorPhase::kFailed);
  // If all servers serve, workers can hand in their rounds, and then learn of the failure.
  if (state_.shards.all_serving()) return;
  // Without all servers, workers would try to hand in their rounds for ever. So their lives end
  // here. They register again, as after a restart, and learn that the job has failed.
  state_.rounds.DropOpen();
  state_.rounds.GatherMembers(now);
  EndLives(state_.membership.EndAll(status.message(), now), now);
}

void Coordinator::FailUnlessOk(const absl::Status& status, absl::Time now) {
  if (!status.ok()) Fail(status, now);
}

void Coordinator::OnCheckpointPublished(
    absl::string_view directory, const absl::StatusOr<checkpoints::PublishedCheckpoint>& published,
    absl::Time now) {
  FailUnlessOk(saves_.OnPublished(directory, published, now), now);
  Advance(now);
}

bool Coordinator::AdvanceLastSave(absl::Time now) {
  const absl::StatusOr<bool> has_changed = saves_.AdvanceLast(now);
  FailUnlessOk(has_changed.status(), now);
  return !has_changed.ok() || *has_changed;
}

bool Coordinator::AdvanceSaving(absl::Time now) {
  if (!state_.checkpoints.last_save().is_begun()) {
    state_.checkpoints.BeginLast(
        /*gives_up=*/state_.ending.is_stopping() || state_.config.exit_when_done, now);
  }
  if (AdvanceLastSave(now)) return true;
  if (state_.checkpoints.tracker().is_active()) return false;
  // Workers may leave now, even if no try of the last save has succeeded. Further tries need only
  // the servers.
  Enter(CoordinatorPhase::kDone);
  return true;
}

bool Coordinator::AdvanceDone(absl::Time now) {
  if (AdvanceLastSave(now)) return true;
  if (state_.ending.should_exit() || state_.checkpoints.tracker().is_active()) return false;
  if (state_.checkpoints.tracker().is_requested()) {
    if (state_.is_shard_away()) return false;
    saves_.BeginRequested(now);
    return true;
  }
  if (!state_.ends() || !state_.checkpoints.last_save().outcome().has_value()) return false;
  state_.ending.OnOver(now);
  if (!state_.Present().empty() || !state_.Returning(now).empty()) return false;
  if (state_.awaits_strangers(now) || !state_.membership.Callers(now).empty()) return false;
  // An absent server may not know of the end. Once operators were told that it is away, the other
  // servers exit without waiting for it.
  if (state_.is_shard_away() && !state_.shards.any_told()) return false;
  Exit("the job is over", now);
  return true;
}

bool Coordinator::AdvanceFailed(absl::Time now) {
  state_.ending.OnOver(now);
  if (state_.ending.should_exit() || !state_.Present().empty()) return false;
  if (!state_.membership.Callers(now).empty()) return false;
  Exit("the job has failed", now);
  return true;
}

void Coordinator::Exit(absl::string_view why, absl::Time now) {
  state_.ending.Exit(state_.shards.Reachable(now), now);
  outbox_.Command(shards::StopCommand{std::string(state_.ending.failure().message())});
  outbox_.Tell(absl::StrCat(why, ", and the workers have left; the servers exit"));
  outbox_.Touch();
}

}  // namespace lodestar::coordinator
