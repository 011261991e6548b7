#include "server/membership/membership_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace lodestar {
namespace {

absl::Status CheckName(absl::string_view name) {
  const bool is_legal = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
  });
  if (is_legal && !name.empty() && name.size() <= MembershipTable::kMaxNameBytes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "worker name of ", name.size(), " bytes",
      is_legal ? "" : " with a character that is not allowed", "; allowed are 1 to ",
      MembershipTable::kMaxNameBytes, " letters, digits, '.', '_', '-'; change --name"));
}

}  // namespace

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
  }
  return "unknown";
}

absl::StatusOr<MembershipTable> MembershipTable::Restore(const Config& config,
                                                         const MembershipState& state,
                                                         Incarnation floor) {
  MembershipTable table(config);
  if (state.names.size() > kMaxWorkers) {
    return absl::InvalidArgumentError(absl::StrCat("membership state has ", state.names.size(),
                                                   " workers; allowed are ", kMaxWorkers));
  }
  WorkerId expected(1);
  for (const MembershipState::Name& entry : state.names) {
    if (absl::Status status = CheckName(entry.name); !status.ok()) return status;
    if (entry.id != expected || !table.ids_.emplace(entry.name, entry.id).second) {
      return absl::InvalidArgumentError(absl::StrCat("membership state: worker '", entry.name,
                                                     "' has id ", entry.id.value(), ", expected ",
                                                     expected.value(), " and every name once"));
    }
    WorkerRecord record;
    record.id = entry.id;
    record.name = entry.name;
    record.state = WorkerState::kExpired;
    table.workers_[entry.id] = std::move(record);
    ++expected;
  }
  table.last_incarnation_ = std::max(state.last_incarnation, floor);
  table.view_ = state.view + 1;
  return table;
}

MembershipState MembershipTable::Export() const {
  MembershipState state;
  for (const auto& [id, worker] : workers_) state.names.push_back({worker.name, id});
  state.last_incarnation = last_incarnation_;
  state.view = view_;
  return state;
}

absl::StatusOr<MembershipTable::Admission> MembershipTable::Register(absl::string_view name,
                                                                     uint64_t instance_id,
                                                                     absl::Time now) {
  if (absl::Status status = CheckName(name); !status.ok()) return status;
  WorkerRecord* worker = FindByName(name);
  if (worker != nullptr && worker->is_alive()) {
    if (worker->instance_id == instance_id) {
      worker->renewed_at = now;
      return Admission{worker->id, worker->incarnation, true};
    }
    const absl::Duration age = now - worker->renewed_at;
    return absl::AlreadyExistsError(absl::StrCat(
        "the name '", name, "' is held by another live process (worker ", worker->id.value(),
        ", last heard of ", absl::FormatDuration(absl::Trunc(age, absl::Milliseconds(1))),
        " ago); choose another --name, or stop that process and try again in ",
        absl::FormatDuration(
            absl::Ceil(std::max(config_.lease - age, absl::ZeroDuration()), absl::Seconds(1)))));
  }
  if (worker == nullptr) {
    if (workers_.size() >= kMaxWorkers) {
      return absl::ResourceExhaustedError(
          absl::StrCat("there have been ", workers_.size(),
                       " workers of different names, the most "
                       "that one job can have; reuse the names of workers that are gone"));
    }
    const WorkerId id(static_cast<uint32_t>(workers_.size() + 1));
    worker = &workers_[id];
    worker->id = id;
    worker->name = std::string(name);
    ids_.emplace(worker->name, id);
  }
  BeginLife(*worker, instance_id, now);
  return Admission{worker->id, worker->incarnation, false};
}

absl::Status MembershipTable::Join(WorkerId id, Incarnation incarnation, absl::Time now) {
  if (absl::Status status = Renew(id, incarnation, now); !status.ok()) return status;
  WorkerRecord& worker = workers_.at(id);
  if (worker.is_member()) return absl::OkStatus();
  worker.state = WorkerState::kMember;
  ++view_;
  return absl::OkStatus();
}

absl::Status MembershipTable::Renew(WorkerId id, Incarnation incarnation, absl::Time now) {
  if (absl::Status status = Check(id, incarnation); !status.ok()) return status;
  workers_.at(id).renewed_at = now;
  return absl::OkStatus();
}

absl::StatusOr<EndedLife> MembershipTable::Leave(WorkerId id, Incarnation incarnation,
                                                 absl::string_view reason) {
  if (absl::Status status = Check(id, incarnation); !status.ok()) return status;
  return EndLife(workers_.at(id), WorkerState::kLeft,
                 reason.empty() ? "left" : absl::StrCat("left: ", reason));
}

std::vector<EndedLife> MembershipTable::Expire(absl::Time now) {
  std::vector<EndedLife> ended;
  for (auto& [id, worker] : workers_) {
    const absl::Duration silence = now - worker.renewed_at;
    if (!worker.is_alive() || silence <= config_.lease) continue;
    ended.push_back(
        EndLife(worker, WorkerState::kExpired,
                absl::StrCat("lease expired: no heartbeat for ",
                             absl::FormatDuration(absl::Trunc(silence, absl::Milliseconds(1))),
                             ", the lease is ", absl::FormatDuration(config_.lease))));
  }
  return ended;
}

absl::Status MembershipTable::Check(WorkerId id, Incarnation incarnation) const {
  const WorkerRecord* worker = Find(id);
  if (worker == nullptr) {
    return absl::AbortedError(
        absl::StrCat("worker ", id.value(), " is not known to this server; register again"));
  }
  if (worker->incarnation == incarnation && worker->is_alive()) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("incarnation ", incarnation.value(), " of worker '",
                                         worker->name, "' is over (now ",
                                         WorkerStateName(worker->state), ", incarnation ",
                                         worker->incarnation.value(), "); register again"));
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

WorkerRecord* MembershipTable::FindByName(absl::string_view name) {
  auto it = ids_.find(name);
  return it == ids_.end() ? nullptr : &workers_.at(it->second);
}

void MembershipTable::BeginLife(WorkerRecord& worker, uint64_t instance_id, absl::Time now) {
  worker.incarnation = ++last_incarnation_;
  worker.instance_id = instance_id;
  worker.state = WorkerState::kRegistered;
  worker.renewed_at = now;
}

EndedLife MembershipTable::EndLife(WorkerRecord& worker, WorkerState state, std::string reason) {
  EndedLife ended{worker.id, worker.incarnation, worker.name, worker.is_member(),
                  std::move(reason)};
  worker.state = state;
  if (ended.was_member) ++view_;
  return ended;
}

}  // namespace lodestar
