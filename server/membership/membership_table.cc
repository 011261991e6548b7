// SPDX-License-Identifier: Apache-2.0

#include "server/membership/membership_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/status_hints.h"
#include "common/runtime/status_macros.h"

namespace lodestar::membership {
absl::string_view WorkerStateName(WorkerState state) {
  switch (state) {
    case WorkerState::kRegistered:
      return "registered";
    case WorkerState::kMember:
      return "member";
    case WorkerState::kLeft:
      return "left";
    case WorkerState::kExpired:
      return "expired";
    case WorkerState::kDropped:
      return "dropped";
  }
  return "unknown";
}

absl::StatusOr<MembershipTable> MembershipTable::Restore(const Config& config,
                                                         const MembershipState& state,
                                                         Incarnation floor, absl::Time now) {
  MembershipTable table(config);
  if (state.names.size() > kMaxWorkers) {
    return absl::InvalidArgumentError(absl::StrCat("membership state has ", state.names.size(),
                                                   " workers; allowed are ", kMaxWorkers));
  }
  for (const MembershipState::Name& entry : state.names) {
    RETURN_IF_ERROR(CheckRecordedName("membership state", entry.name, kMaxWorkerNameBytes));
    if (entry.id <= table.last_id_ || !table.ids_.emplace(entry.name, entry.id).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("the saved list of workers is damaged: worker '", entry.name, "' has id ",
                       entry.id.value(), ", but its id must be above ", table.last_id_.value(),
                       ", and its name must occur once"));
    }
    table.last_id_ = entry.id;
    WorkerRecord record;
    record.id = entry.id;
    record.name = entry.name;
    record.state = WorkerState::kExpired;
    if (entry.was_alive) {
      record.is_away = true;
      record.ended_at = now;
      record.end_reason = "has not come back since the servers started again";
    }
    table.ended_.push_back(record.id);
    table.workers_[entry.id] = std::move(record);
  }
  table.last_id_ = std::max(table.last_id_, state.last_id);
  table.last_incarnation_ = std::max(state.last_incarnation, floor);
  table.view_ = state.view + 1;
  return table;
}

void MembershipTable::RememberEnds(const MembershipTable& former) {
  for (auto& [id, record] : workers_) {
    const WorkerRecord* const known = former.FindByName(record.name);
    if (known == nullptr || known->is_alive() || known->is_away) continue;
    record.state = known->state;
    record.is_away = false;
    record.ended_at = known->ended_at;
    record.end_reason = known->end_reason;
  }
}

MembershipState MembershipTable::Export() const {
  MembershipState state;
  for (const auto& [id, worker] : workers_) {
    state.names.push_back({worker.name, id, worker.is_alive()});
  }
  state.last_id = last_id_;
  state.last_incarnation = last_incarnation_;
  state.view = view_;
  return state;
}

MembershipTable::Memory MembershipTable::memory() const {
  Memory memory;
  for (const auto& [id, worker] : workers_) {
    memory.workers.push_back(worker);
    memory.workers.back().renewed_at = absl::InfinitePast();
    memory.workers.back().times_renewed = 0;
  }
  memory.ended.assign(ended_.begin(), ended_.end());
  memory.last_id = last_id_;
  memory.last_incarnation = last_incarnation_;
  memory.view = view_;
  return memory;
}

absl::StatusOr<MembershipTable> MembershipTable::Resume(const Config& config, Memory memory,
                                                        absl::Time now) {
  MembershipTable table(config);
  for (WorkerRecord& worker : memory.workers) {
    const WorkerId id = worker.id;
    if (id > memory.last_id || !table.ids_.emplace(worker.name, id).second) {
      return absl::DataLossError(absl::StrCat("the coordinator's journal is damaged: worker '",
                                              worker.name, "' occurs twice, or its id ", id.value(),
                                              " is above the last id, ", memory.last_id.value()));
    }
    if (worker.is_alive()) worker.renewed_at = now;
    table.workers_[id] = std::move(worker);
  }
  for (const WorkerId id : memory.ended) {
    const WorkerRecord* worker = table.Find(id);
    if (worker == nullptr || worker->is_alive()) {
      return absl::DataLossError(
          absl::StrCat("the coordinator's journal is damaged: worker ", id.value(),
                       " is in the list of ended workers, but no record says that it ended"));
    }
    table.ended_.push_back(id);
  }
  table.last_id_ = memory.last_id;
  table.last_incarnation_ = memory.last_incarnation;
  table.view_ = memory.view;
  return table;
}

absl::StatusOr<MembershipTable::Admission> MembershipTable::Register(absl::string_view name,
                                                                     uint64_t instance_id,
                                                                     absl::Time now) {
  if (absl::Status status = CheckWorkerName("--name", name); !status.ok()) return status;
  const auto known = ids_.find(name);
  WorkerRecord* worker = known == ids_.end() ? nullptr : &workers_.at(known->second);
  if (worker != nullptr && worker->is_alive()) {
    if (worker->instance_id == instance_id) {
      worker->renewed_at = now;
      ++worker->times_renewed;
      return Admission{worker->id, worker->incarnation, true};
    }
    const absl::Duration age = now - worker->renewed_at;
    const absl::Duration rest = std::max(config_.lease - age, absl::ZeroDuration());
    absl::Status held = absl::AlreadyExistsError(
        absl::StrCat("the name '", name, "' is held by another live process (worker ",
                     worker->id.value(), ", last heard of ",
                     absl::FormatDuration(
                         std::max(absl::Trunc(age, absl::Milliseconds(1)), absl::Milliseconds(1))),
                     " ago); choose another --name, or stop that process and try again in ",
                     absl::FormatDuration(absl::Ceil(rest, absl::Seconds(1)))));
    return WithTimesRenewed(WithRetryAfter(std::move(held), rest), worker->times_renewed);
  }
  if (worker == nullptr) {
    if (workers_.size() >= kMaxWorkers) {
      return absl::ResourceExhaustedError(
          absl::StrCat("there are ", workers_.size(),
                       " workers, the maximum of one job; try again when some have left"));
    }
    worker = &workers_[++last_id_];
    worker->id = last_id_;
    worker->name = std::string(name);
    ids_.emplace(worker->name, last_id_);
    strangers_.insert(last_id_);
  }
  BeginLife(*worker, instance_id, now);
  return Admission{worker->id, worker->incarnation, false};
}

absl::Status MembershipTable::Join(WorkerId id, Incarnation incarnation, absl::Time now) {
  if (absl::Status status = Renew(id, incarnation, now); !status.ok()) return status;
  WorkerRecord& worker = workers_.at(id);
  if (worker.is_member()) return absl::OkStatus();
  worker.state = WorkerState::kMember;
  strangers_.erase(id);
  ++view_;
  return absl::OkStatus();
}

absl::Status MembershipTable::Renew(WorkerId id, Incarnation incarnation, absl::Time now) {
  if (absl::Status status = Check(id, incarnation); !status.ok()) return status;
  WorkerRecord& worker = workers_.at(id);
  worker.renewed_at = now;
  ++worker.times_renewed;
  return absl::OkStatus();
}

bool MembershipTable::HasLeft(WorkerId id, Incarnation incarnation) const {
  const WorkerRecord* worker = Find(id);
  return worker != nullptr && worker->incarnation == incarnation &&
         worker->state == WorkerState::kLeft;
}

void MembershipTable::RenewAll(absl::Time now) {
  for (auto& [id, worker] : workers_) {
    if (worker.is_alive()) worker.renewed_at = now;
  }
}

absl::StatusOr<EndedLife> MembershipTable::Leave(WorkerId id, Incarnation incarnation,
                                                 absl::string_view reason, absl::Time now) {
  if (absl::Status status = Check(id, incarnation); !status.ok()) return status;
  return EndLife(workers_.at(id), WorkerState::kLeft,
                 reason.empty() ? "left" : absl::StrCat("left: ", reason), now);
}

absl::StatusOr<EndedLife> MembershipTable::Drop(WorkerId id, Incarnation incarnation,
                                                absl::string_view reason, absl::Time now) {
  if (absl::Status status = Check(id, incarnation); !status.ok()) return status;
  return EndLife(workers_.at(id), WorkerState::kDropped, absl::StrCat("dropped: ", reason), now);
}

std::vector<EndedLife> MembershipTable::EndAll(absl::string_view reason, absl::Time now) {
  // Collects the ids first, because EndLife() may remove other workers from workers_.
  std::vector<WorkerId> alive;
  for (const auto& [id, worker] : workers_) {
    if (worker.is_alive()) alive.push_back(id);
  }
  std::vector<EndedLife> ended;
  for (WorkerId id : alive) {
    WorkerRecord& worker = workers_.at(id);
    worker.is_away = true;
    ended.push_back(EndLife(worker, WorkerState::kDropped, absl::StrCat("dropped: ", reason), now));
  }
  return ended;
}

std::vector<EndedLife> MembershipTable::Expire(absl::Time now) {
  // Collects the ids first, because EndLife() may remove other workers from workers_.
  std::vector<WorkerId> silent;
  for (const auto& [id, worker] : workers_) {
    if (worker.is_alive() && now - worker.renewed_at > config_.lease) silent.push_back(id);
  }
  std::vector<EndedLife> ended;
  for (WorkerId id : WaitingTooMany()) {
    WorkerRecord& worker = workers_.at(id);
    if (now - worker.renewed_at > config_.lease) continue;
    ended.push_back(EndLife(worker, WorkerState::kDropped,
                            absl::StrCat("dropped: more than ", kMaxWaiting,
                                         " workers have registered without joining"),
                            now));
  }
  for (WorkerId id : silent) {
    WorkerRecord& worker = workers_.at(id);
    ended.push_back(EndLife(
        worker, WorkerState::kExpired,
        absl::StrCat(
            "lease expired: no heartbeat for ",
            absl::FormatDuration(absl::Trunc(now - worker.renewed_at, absl::Milliseconds(1))),
            ", and the lease is ", absl::FormatDuration(config_.lease)),
        now));
  }
  std::sort(ended.begin(), ended.end(),
            [](const EndedLife& a, const EndedLife& b) { return a.id < b.id; });
  return ended;
}

absl::Status MembershipTable::Check(WorkerId id, Incarnation incarnation) const {
  const WorkerRecord* worker = Find(id);
  if (worker == nullptr) {
    return absl::AbortedError(
        absl::StrCat("worker ", id.value(), " is not known to this server; register again"));
  }
  if (worker->incarnation == incarnation && worker->is_alive()) return absl::OkStatus();
  const std::string why =
      worker->incarnation == incarnation || worker->incarnation == Incarnation()
          ? worker->end_reason
          : absl::StrCat("replaced by incarnation ", worker->incarnation.value());
  return absl::AbortedError(absl::StrCat("the membership of worker '", worker->name,
                                         "' has ended (", why, "; incarnation ",
                                         incarnation.value(), "); the worker must register again"));
}

const WorkerRecord* MembershipTable::Find(WorkerId id) const {
  auto it = workers_.find(id);
  return it == workers_.end() ? nullptr : &it->second;
}

std::vector<const WorkerRecord*> MembershipTable::Members() const {
  std::vector<const WorkerRecord*> members;
  for (const auto& [id, worker] : workers_) {
    if (worker.is_member()) members.push_back(&worker);
  }
  return members;
}

const WorkerRecord* MembershipTable::FindByName(absl::string_view name) const {
  auto it = ids_.find(name);
  return it == ids_.end() ? nullptr : &workers_.at(it->second);
}

void MembershipTable::BeginLife(WorkerRecord& worker, uint64_t instance_id, absl::Time now) {
  ++num_life_changes_;
  std::erase(ended_, worker.id);
  std::erase(ended_strangers_, worker.id);
  worker.incarnation = ++last_incarnation_;
  worker.instance_id = instance_id;
  worker.state = WorkerState::kRegistered;
  worker.renewed_at = now;
  worker.times_renewed = 0;
  worker.end_reason.clear();
  worker.is_away = false;
}

EndedLife MembershipTable::EndLife(WorkerRecord& worker, WorkerState state, std::string reason,
                                   absl::Time now) {
  ++num_life_changes_;
  EndedLife ended{worker.id, worker.incarnation, worker.name, worker.is_member(), reason};
  worker.state = state;
  worker.ended_at = now;
  worker.end_reason = std::move(reason);
  if (ended.was_member) ++view_;
  ended_.push_back(worker.id);
  if (strangers_.contains(worker.id)) ended_strangers_.push_back(worker.id);
  if (ended_strangers_.size() > kMaxEndedStrangers) Forget(ended_strangers_.front());
  while (ended_.size() > kMaxEnded) Forget(ended_.front());
  return ended;
}

std::vector<WorkerId> MembershipTable::WaitingTooMany() const {
  const size_t num_waiting = strangers_.size() - ended_strangers_.size();
  if (num_waiting <= kMaxWaiting) return {};
  std::vector<WorkerId> waiting;
  for (const WorkerId id : strangers_) {
    if (workers_.at(id).is_alive()) waiting.push_back(id);
  }
  const auto by_life = [this](WorkerId a, WorkerId b) {
    return workers_.at(a).incarnation < workers_.at(b).incarnation;
  };
  std::sort(waiting.begin(), waiting.end(), by_life);
  waiting.resize(waiting.size() - kMaxWaiting);
  std::sort(waiting.begin(), waiting.end());
  return waiting;
}

void MembershipTable::Forget(WorkerId id) {
  std::erase(ended_, id);
  std::erase(ended_strangers_, id);
  strangers_.erase(id);
  ids_.erase(workers_.at(id).name);
  workers_.erase(id);
}

}  // namespace lodestar::membership
