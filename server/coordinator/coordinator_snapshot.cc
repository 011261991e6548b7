// What people see: the state of the cluster and whom it waits for.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/coordinator/coordinator.h"

namespace lodestar {
namespace {

std::string AgeText(absl::Duration age) {
  return absl::FormatDuration(absl::Trunc(age, absl::Milliseconds(100)));
}

std::string Held(const Decision& decision) {
  return decision.action == Action::kApply ? "" : decision.reason;
}

// The missing of a round, without those who have sent theirs and only wait behind others for the
// acknowledgement (sums have a fixed order).
std::vector<WorkerId> Awaited(const OpenRound& round, const std::map<WorkerId, WorkerDesk>& desks) {
  const std::vector<WorkerId> missing = round.Missing();
  std::vector<WorkerId> awaited;
  for (WorkerId worker : missing) {
    auto desk = desks.find(worker);
    if (desk == desks.end() || !desk->second.is_delivering()) awaited.push_back(worker);
  }
  return awaited.empty() ? missing : awaited;
}

}  // namespace

void Coordinator::RaiseAlarm(absl::string_view text, absl::Time now, AlarmKind kind) {
  if (alarms_.Raise(text, now, kind)) deps_.observer->OnAlarm(text);
}

// Who is waited for, in which round, and for how long; empty if nobody is.
std::string Coordinator::WaitingFor(absl::Time now) const {
  switch (phase_) {
    case CoordinatorPhase::kAwaitingShards:
      return absl::StrCat("waits for the server of ",
                          shards_.Lacking(ShardRegistry::State::kAttached, now));
    case CoordinatorPhase::kRestoring:
      return "looks for the newest checkpoint that verifies";
    case CoordinatorPhase::kAwaitingLayout:
      return "waits for a client that brings the layout of its model";
    case CoordinatorPhase::kLoading:
      return absl::StrCat("waits for weights to be loaded by ",
                          shards_.Lacking(ShardRegistry::State::kServing, now));
    case CoordinatorPhase::kSaving:
      return "waits for the last checkpoint to be written";
    case CoordinatorPhase::kDone:
      return WaitingForLastSave(now);
    case CoordinatorPhase::kFailed:
      return std::string(failure_.message());
    case CoordinatorPhase::kRunning:
    case CoordinatorPhase::kEvaluating:
      break;
  }
  if (awaits_supply()) {
    return supplier_.has_value() ? absl::StrCat("waits for ", NameOf(supplier_->worker),
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
                        " waits for ", absl::StrJoin(names, ", "), ", open for ",
                        AgeText(now - round.opened_at()));
  }
  if (is_work_held()) {
    const std::string save = WaitingForLastSave(now);
    return absl::StrCat("no work is handed out: ", hold_reason_, save.empty() ? "" : "; ", save);
  }
  if (phase_ == CoordinatorPhase::kEvaluating) {
    std::vector<std::string> names;
    for (WorkerId worker : ledger_.LackingFor(Waiting())) names.push_back(NameOf(worker));
    return absl::StrCat("the final evaluation waits for ",
                        names.empty() ? "a worker" : absl::StrJoin(names, ", "));
  }
  const ClusterView view = View();
  for (const MemberProgress& member : view.members) {
    if (!member.waiting || policy_->uses_rosters()) continue;
    if (std::string held = Held(policy_->OnGrant(member, view.Facts())); !held.empty()) return held;
  }
  return Held(policy_->OnOpening(view.Facts()));
}

std::string Coordinator::WaitingForLastSave(absl::Time now) const {
  if (!last_save_.is_begun() || last_save_.outcome().has_value()) return "";
  if (checkpoints_.is_active() || last_save_.error().ok()) {
    return "waits for the last checkpoint to be written";
  }
  return absl::StrCat("the last checkpoint failed and is tried again in ",
                      AgeText(std::max(last_save_.next_try() - now, absl::ZeroDuration())), ": ",
                      last_save_.error().message());
}

absl::string_view Coordinator::StateName() const {
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
      return "done";
    case CoordinatorPhase::kFailed:
      return "failed";
    case CoordinatorPhase::kRunning:
      break;
  }
  if (is_stopping()) return "stopping";
  return open_.empty() ? "waiting_for_workers" : "training";
}

ClusterSnapshot Coordinator::Snapshot(absl::Time now) const {
  ClusterSnapshot snapshot;
  const LedgerState ledger = ledger_.state();
  snapshot.server_incarnation = server_incarnation_;
  snapshot.uptime = now - started_at_;
  snapshot.state = std::string(StateName());
  snapshot.waiting_for = WaitingFor(now);
  snapshot.round = ledger.next_round;
  snapshot.total_rounds = config_.job.schedule.total_rounds;
  snapshot.epoch = ledger_.epoch();
  snapshot.samples = ledger.next_sample;
  snapshot.learning_rate =
      ledger_.LearningRate(Round(std::max<int64_t>(0, ledger.next_round - 1)), /*step=*/0);
  const auto open_rounds = static_cast<int64_t>(open_.size());
  progress_.Describe({.remaining_rounds = snapshot.total_rounds - ledger.next_round + open_rounds,
                      .tokens_per_sample = ledger_.tokens_per_sample(),
                      .is_training = phase_ == CoordinatorPhase::kRunning && !open_.empty()},
                     now, snapshot);
  snapshot.view = membership_.view();
  for (const auto& [id, record] : membership_.workers()) {
    auto desk = desks_.find(id);
    const WorkerDesk none;
    snapshot.workers.push_back(
        (desk == desks_.end() ? none : desk->second).Snapshot(record, ledger.next_round - 1, now));
    if (const DataSetState* data = ledger_.DataOf(id); data != nullptr) {
      snapshot.workers.back().data = DataSnapshot{
          data->claim.own_partition, data->claim.fingerprint, data->claim.num_train_samples,
          data->claim.num_heldout_samples, EpochOf(*data)};
    }
  }
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
                               std::string(ShardRegistry::StateName(entry.state)),
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

}  // namespace lodestar
