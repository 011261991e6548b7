// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/cluster_faults.h"

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/job/robust_mean.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"
#include "server/coordinator/cluster_words.h"
#include "server/coordinator/verdict_words.h"
#include "server/membership/membership_table.h"

namespace lodestar::coordinator {
namespace {

std::string OddLoss(double loss_sum, int64_t predictions, double lowest) {
  if (predictions == 0) return "";
  const double mean = loss_sum / static_cast<double>(predictions);
  constexpr double kHighest = std::numeric_limits<float>::max();
  if (!std::isfinite(mean)) return "is not finite";
  if (mean >= lowest && mean <= kHighest) return "";
  return absl::StrCat("is ", mean, "; it must be from ", lowest, " to ", kHighest);
}

absl::Status NoSuchWorker(absl::string_view name) {
  return absl::NotFoundError(absl::StrCat(
      "there is no worker '", PeerText(name, membership::MembershipTable::kMaxNameBytes),
      "'; psctl workers lists the names"));
}

FaultVerdict Drop(WorkerId worker, std::string reason) {
  return {.kind = FaultVerdict::Kind::kDrop, .worker = worker, .reason = std::move(reason)};
}

}  // namespace

std::string OddLoss(const messages::RoundReport& report, const params::ModelSpec& model) {
  // A cross-entropy can be below zero only through rounding. The loss of a client's own model can
  // be any fp32 number.
  const double lowest = std::holds_alternative<params::ClientModelSpec>(model.architecture)
                            ? std::numeric_limits<float>::lowest()
                            : -0.01;
  std::string odd = OddLoss(report.loss_sum, report.num_predictions, lowest);
  if (!odd.empty()) return odd;
  return OddLoss(report.heldout_loss_sum, report.heldout_predictions, lowest);
}

absl::Status ClusterFaults::CheckSound(const messages::RegisterCall& call) const {
  if (const faults::Quarantine::Entry* entry = state_.faults.quarantine().Find(call.name);
      entry != nullptr) {
    return absl::FailedPreconditionError(ShutOutText(*entry));
  }
  const membership::WorkerRecord* record = state_.membership.table().FindByName(call.name);
  if (record == nullptr || !state_.faults.IsSick(record->id) ||
      !state_.membership.ConnectionOf(record->id).IsProcess(call.instance_id)) {
    return absl::OkStatus();
  }
  const int times = state_.faults.times_not_finite(record->id);
  return absl::FailedPreconditionError(absl::StrCat(
      "worker '", call.name, "' has sent NaN or Inf ", times, times == 1 ? " time" : " times",
      " in a row (--nonfinite_limit), while other workers sent finite numbers. Check its device, "
      "its memory and its data, then start it again"));
}

FaultVerdict ClusterFaults::OnWorkerFault(const sync::WorkerFault& fault, absl::Time now) {
  const membership::WorkerRecord* record = state_.membership.table().Find(fault.worker);
  // A worker whose push was refused may leave before the shard's report comes here. So the fault
  // counts until the worker begins a new life.
  if (record == nullptr || record->incarnation != fault.incarnation || !state_.is_ready()) {
    return {};
  }
  switch (fault.kind) {
    case sync::WorkerFault::Kind::kNotFinite:
      return OnNotFinite(fault.worker, fault.round, fault.text, now);
    case sync::WorkerFault::Kind::kTooLong:
    case sync::WorkerFault::Kind::kOpposed:
      return CountPoisoned(fault, now);
    case sync::WorkerFault::Kind::kUnrelated:
      Accuse(absl::StrCat("worker '", record->name,
                          "' sends contributions that have nothing in common with those of other "
                          "workers; check its data and its device"),
             fault.text, now);
      return {};
    case sync::WorkerFault::Kind::kNotPushed:
      outbox_.RaiseAlarm(
          absl::StrCat(
              "worker '", record->name,
              "' reports rounds whose contributions it has not sent; the worker is dropped"),
          now);
      return Drop(fault.worker, fault.text);
  }
  return {};
}

FaultVerdict ClusterFaults::CountPoisoned(const sync::WorkerFault& fault, absl::Time now) {
  const faults::SenderVerdict verdict =
      state_.faults.CountPoisoned(fault.worker, fault.round, Senders());
  if (verdict.kind == faults::SenderVerdict::Kind::kRepeat) return {};
  outbox_.Remember();
  const std::string name = state_.NameOf(fault.worker);
  // A shard reports kOpposed only after many rounds, so one report is enough for the alarm.
  const bool is_opposed = fault.kind == sync::WorkerFault::Kind::kOpposed;
  const std::string what = absl::StrCat(
      "worker '", name, "' sends contributions that ",
      is_opposed ? "point against those of other workers; they are counted as usual, so check "
                   "its data and its device"
                 : "are far longer than those of other workers; they are counted as if they had "
                   "the usual length");
  if (is_opposed || verdict.times >= faults::DivergencePolicy::kPoisonAlarm) {
    Accuse(what, fault.text, now);
  } else {
    outbox_.Tell(absl::StrCat(what, ": ", fault.text));
  }
  return Follow(verdict, fault.worker, fault.text, now);
}

FaultVerdict ClusterFaults::Follow(const faults::SenderVerdict& verdict, WorkerId worker,
                                   absl::string_view text, absl::Time now) {
  const std::string name = state_.NameOf(worker);
  const int limit = state_.faults.limits().poison_limit;
  if (verdict.kind == faults::SenderVerdict::Kind::kUndecided) {
    Accuse(
        absl::StrCat("worker '", name, "' differs from the other workers in more than ", limit,
                     " rounds (--poison_limit). It is not shut out, because at least half of "
                     "the other workers have one certificate, '",
                     verdict.leading_identity,
                     "'. The numbers do not show whether this worker or those workers are wrong. "
                     "Check the data and the devices of both, and run psctl revoke for the "
                     "certificate that is wrong"),
        text, now);
  }
  if (verdict.kind != faults::SenderVerdict::Kind::kShutOut) return {};
  const std::string reason =
      absl::StrCat("in ", verdict.times, " of ", faults::DivergencePolicy::kPoisonWindow,
                   " rounds its contributions were far longer than those of other workers, pointed "
                   "against them or were not finite (--poison_limit=",
                   limit, "). The last one: ", text);
  // A worker with a certificate could come back under another name that begins with the
  // certificate's name. So the certificate is shut out.
  const std::string& identity = state_.membership.ConnectionOf(worker).identity();
  const bool has_identity = !identity.empty();
  state_.faults.ShutOut({has_identity ? identity : name, reason, has_identity});
  saves_.OnOrdersChanged(now);
  outbox_.RaiseAlarm(absl::StrCat("worker '", name, "' is shut out: ", reason,
                                  ". psctl readmit lets it join again"),
                     now);
  return {.kind = FaultVerdict::Kind::kShutOut, .reason = absl::StrCat("shut out: ", reason)};
}

std::vector<faults::Sender> ClusterFaults::Senders() const {
  std::vector<faults::Sender> senders;
  for (const auto& [id, connection] : state_.membership.connections()) {
    const membership::WorkerRecord* record = state_.membership.table().Find(id);
    senders.push_back({.worker = id,
                       .identity = connection.identity(),
                       .is_member = record != nullptr && record->is_member()});
  }
  return senders;
}

void ClusterFaults::LookForFewSenders(const rounds::OpenRound& round, int num_workers,
                                      absl::Time now) {
  const job::RobustMean& mean = state_.model.job().robust_mean;
  if (num_workers < mean.MinContributions()) {
    outbox_.RaiseAlarm(
        absl::StrCat(
            "--robust_mean=", job::RobustMeanText(mean), " needs ", mean.MinContributions(),
            " contributions per round, but rounds had fewer. One wrong contribution may then "
            "decide the mean. Start more workers, or raise --min_workers and --keep_workers"),
        now);
  } else if (const int certificates = NumCertificates(round.Arrived());
             certificates < mean.MinContributions()) {
    outbox_.RaiseAlarm(
        absl::StrCat(
            "--robust_mean=", job::RobustMeanText(mean), " needs contributions from ",
            mean.MinContributions(),
            " different certificates, but rounds had fewer. The workers of one certificate may "
            "then decide the mean. Give each machine a separate certificate (psctl token create)"),
        now);
  }
}

int ClusterFaults::NumCertificates(const std::vector<WorkerId>& workers) const {
  std::set<std::string> certificates;
  int without = 0;
  for (const WorkerId worker : workers) {
    const std::string& identity = state_.membership.ConnectionOf(worker).identity();
    if (identity.empty()) {
      ++without;
    } else {
      certificates.insert(identity);
    }
  }
  return without + static_cast<int>(certificates.size());
}

void ClusterFaults::LookForEqualLosses(WorkerId worker, const messages::RoundReport& report,
                                       absl::Time now) {
  if (report.num_predictions == 0) return;
  const std::optional<WorkerId> other = state_.faults.OnLoss(worker, report.round, report.loss_sum);
  if (!other.has_value()) return;
  outbox_.RaiseAlarm(
      absl::StrCat(
          "workers '", state_.NameOf(*other), "' and '", state_.NameOf(worker),
          "' report equal losses round by round: they seem to train on the same samples. "
          "Give each worker samples of its own, with ps.loader(DataLoader) or with ps.index in the "
          "seed"),
      now);
}

void ClusterFaults::Accuse(absl::string_view what, absl::string_view seen, absl::Time now) {
  if (outbox_.RaiseAlarm(what, now)) outbox_.Tell(absl::StrCat(what, ": ", seen));
}

absl::StatusOr<FaultVerdict> ClusterFaults::Evict(absl::string_view name, absl::string_view reason,
                                                  absl::Time now) {
  RETURN_IF_ERROR(CheckKnowsOrders(state_, now));
  if (state_.membership.table().FindByName(name) == nullptr) return NoSuchWorker(name);
  return ShutOutByOperator(std::string(name), /*is_identity=*/false, reason, now);
}

absl::StatusOr<FaultVerdict> ClusterFaults::EvictCertificate(absl::string_view certificate,
                                                             absl::string_view reason,
                                                             absl::Time now) {
  RETURN_IF_ERROR(CheckKnowsOrders(state_, now));
  return ShutOutByOperator(std::string(certificate), /*is_identity=*/true, reason, now);
}

absl::StatusOr<std::string> ClusterFaults::CertificateOf(absl::string_view name) const {
  if (const membership::WorkerRecord* record = state_.membership.table().FindByName(name);
      record != nullptr) {
    const std::string& identity = state_.membership.ConnectionOf(record->id).identity();
    if (!identity.empty()) return identity;
    return absl::FailedPreconditionError(
        absl::StrCat("worker '", name, "' has no certificate; evict it without --certificate"));
  }
  if (!state_.membership.WorkersOf(name).empty()) return std::string(name);
  return NoSuchWorker(name);
}

FaultVerdict ClusterFaults::ShutOutByOperator(std::string name, bool is_identity,
                                              absl::string_view reason, absl::Time now) {
  std::string why = absl::StrCat("an operator has evicted this worker: ", reason);
  state_.faults.ShutOut({std::move(name), why, is_identity, /*is_by_operator=*/true});
  saves_.OnOrdersChanged(now);
  outbox_.Remember();
  return FaultVerdict{.kind = FaultVerdict::Kind::kShutOut, .reason = std::move(why)};
}

absl::Status ClusterFaults::Readmit(absl::string_view name, absl::Time now) {
  RETURN_IF_ERROR(CheckKnowsOrders(state_, now));
  if (!state_.faults.Readmit(name)) {
    return absl::NotFoundError(
        absl::StrCat("no worker '", PeerText(name, membership::MembershipTable::kMaxNameBytes),
                     "' is shut out; psctl workers lists the names"));
  }
  state_.membership.OnReadmitted(name);
  saves_.OnOrdersChanged(now);
  outbox_.Remember();
  outbox_.Tell(absl::StrCat("worker readmitted name=", name));
  return absl::OkStatus();
}

// Decides what follows if the numbers of a worker are not finite:
// - If there is a member that has not sent such numbers, the worker is dropped or shut out. A
//   dropped worker may register again until it has reached --nonfinite_limit.
// - If all members have sent such numbers, no single worker is to blame: the run has diverged.
FaultVerdict ClusterFaults::OnNotFinite(WorkerId worker, Round round, absl::string_view text,
                                        absl::Time now) {
  const membership::WorkerRecord* record = state_.membership.table().Find(worker);
  // If several buckets report the fault, it counts only once for each life of the worker.
  const faults::NotFiniteVerdict verdict =
      state_.faults.CountNotFinite(worker, record->incarnation, round, Senders());
  if (verdict.kind == faults::NotFiniteVerdict::Kind::kRepeat) return {};
  outbox_.Remember();
  outbox_.RaiseAlarm(absl::StrCat("worker '", record->name,
                                  "' has sent numbers that are NaN, infinite or impossibly large; "
                                  "its contribution is not counted"),
                     now);
  if (verdict.kind == faults::NotFiniteVerdict::Kind::kDiverged) {
    // The worker computed its numbers on the weights after `round` updates. So a checkpoint of
    // these weights is already bad.
    return Diverge(round, round, absl::StrCat("no worker sends finite numbers any more: ", text),
                   now);
  }
  const FaultVerdict of_sender = Follow(verdict.sender, worker, text, now);
  if (of_sender.kind == FaultVerdict::Kind::kShutOut) return of_sender;
  return Drop(worker, NotFiniteReason(state_, worker, text));
}

FaultVerdict ClusterFaults::OnShardDiverged(int shard, Round round, absl::string_view text,
                                            absl::Time now) {
  // The update of `round` is bad. With rosters, every checkpoint of more than `round` rounds has
  // this update. Without rosters, rounds end in any order. Checkpoints on disk have finite weights,
  // so they lack this update, and none of them is bad.
  const Round first_bad =
      state_.rounds.uses_rosters() ? round + 1 : state_.rounds.ledger().next_round() + 1;
  return Diverge(round, first_bad, absl::StrCat("shard ", shard, ": ", text), now);
}

FaultVerdict ClusterFaults::Diverge(Round round, Round first_bad, absl::string_view why,
                                    absl::Time now) {
  if (!state_.is_ready() || !state_.ending.failure().ok() || state_.ending.should_exit()) return {};
  const std::optional<checkpoints::PublishedCheckpoint>& last = state_.checkpoints.tracker().last();
  const bool is_last_bad = last.has_value() && last->round >= first_bad;
  const std::string good = !last.has_value() ? "none"
                           : is_last_bad
                               ? absl::StrCat("the one before ", last->path,
                                              " (which has the bad weights and is set aside)")
                               : absl::StrCat("round ", last->round.value(), ", ", last->path);
  const std::string what = absl::StrCat("diverged at round ", round.value(),
                                        "; last good checkpoint: ", good, ". ", why);
  saves_.GiveUp(absl::FailedPreconditionError(what));
  state_.rounds.DropOpen();
  // The bad checkpoints are marked before anything is restored, so that servers that are started
  // later do not use them either.
  outbox_.Do(SetAsideTask{first_bad, "have weights that lead to NaN or Inf"});
  const bool may_go = !state_.ending.is_stopping() && !state_.ending.is_work_held();
  if (state_.faults.OnDiverged({round, what, now}, may_go)) {
    const faults::FaultPolicy::Memory& faults = state_.faults.memory();
    outbox_.RaiseAlarm(absl::StrCat(what, ". The job goes back to ",
                                    last.has_value() ? "that checkpoint" : "the first weights",
                                    " with the learning rate multiplied by ",
                                    faults.learning_rate_scale, " (rollback ", faults.rollbacks,
                                    " of ", state_.faults.limits().max_rollbacks, ")"),
                       now);
    return {.kind = FaultVerdict::Kind::kGoBack};
  }
  const std::string after = LearningRateHistoryText(state_.faults.memory());
  if (is_last_bad) state_.checkpoints.ForgetNewest();
  state_.ending.FailDiverged(
      absl::FailedPreconditionError(absl::StrCat(
          what, after, ". Lower --learning_rate, or set --clip_norm, and start again")),
      what);
  outbox_.RaiseAlarm(state_.ending.failure().message(), now);
  state_.checkpoints.BeginLast(/*gives_up=*/true, now);
  return {.kind = FaultVerdict::Kind::kEnd};
}

absl::Status ClusterFaults::CheckMayRollBack(Round round, absl::Time now) const {
  const auto refuse = [](absl::string_view because) {
    return absl::FailedPreconditionError(absl::StrCat("the job cannot go back now: ", because));
  };
  if (state_.rounds.is_site()) {
    return refuse(absl::StrCat("this server belongs to a site, and gets its weights from ",
                               state_.rounds.site().upstream(),
                               ". Use psctl rollback with that server"));
  }
  if (state_.model.tuning().is_measuring())
    return refuse("it is still measuring to choose its exchange settings; try again later");
  if (!state_.saves())
    return refuse("it has no checkpoints, because the server has no --checkpoint_dir");
  if (!state_.is_ready()) return refuse(WaitingFor(state_, now));
  if (state_.ending.is_stopping() || state_.ending.should_exit() || !state_.ending.failure().ok() ||
      state_.phase == CoordinatorPhase::kDone) {
    return refuse(
        "it has ended or is ending; start the server with --resume=PATH of an older checkpoint");
  }
  if (const int64_t rounds_done = state_.rounds.rounds_done(); round.value() >= rounds_done) {
    return refuse(absl::StrCat("it has done ", rounds_done,
                               " rounds, so there is nothing to undo for round ", round.value(),
                               "; give a lower round"));
  }
  return absl::OkStatus();
}

absl::StatusOr<FaultVerdict> ClusterFaults::RollBack(Round round, absl::string_view why,
                                                     absl::Time now) {
  RETURN_IF_ERROR(CheckMayRollBack(round, now));
  const int64_t rounds_done = state_.rounds.rounds_done();
  outbox_.Tell(absl::StrCat("the job goes back from round ", rounds_done,
                            " to the newest checkpoint of at most ", round.value(),
                            " rounds, because an operator ordered it: ", why));
  state_.faults.SetBack({rounds_done,
                         absl::StrCat("an operator sent the job back to round ", round.value(),
                                      " or before (", why, ")"),
                         faults::Setback::Order{round.value(), std::string(why)}});
  saves_.GiveUp(absl::AbortedError(absl::StrCat("the job goes back: ", why)));
  state_.rounds.DropOpen();
  outbox_.Do(SetAsideTask{round + 1, "belong to undone rounds"});
  return FaultVerdict{.kind = FaultVerdict::Kind::kGoBack};
}

}  // namespace lodestar::coordinator
