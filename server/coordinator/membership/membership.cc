// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/membership/membership.h"

#include <algorithm>
#include <set>

#include "common/runtime/remedy.h"
#include "common/runtime/status_hints.h"
#include "common/runtime/status_macros.h"

namespace lodestar::membership {
namespace {

// A worker may take this long to connect again: the maximum of kLeastPatience, of kRoundTrips round
// trips on its network path, and of the share kShareOfRound of a long round.
constexpr absl::Duration kLeastPatience = absl::Seconds(1);
constexpr int kRoundTrips = 4;
constexpr double kShareOfRound = 0.05;

}  // namespace

Membership::Membership(const Config& config)
    : table_(MembershipTable::Config{.lease = config.lease}),
      closed_connections_({.num_shards = config.num_shards, .lease = config.lease}),
      registrations_(config.registrations),
      refusals_(kRefusalsShownFor),
      callers_(config.caller_patience),
      life_key_(config.life_key) {}

absl::Status Membership::Resume(Memory memory, absl::Time now) {
  life_key_ = std::move(memory.life_key);
  live_workers_.reset();
  ASSIGN_OR_RETURN(table_, MembershipTable::Resume(table_.config(), std::move(memory.table), now));
  return absl::OkStatus();
}

absl::Status Membership::Restore(const MembershipState& state, Start start, absl::Time now) {
  ASSIGN_OR_RETURN(
      MembershipTable table,
      MembershipTable::Restore(table_.config(), state, Incarnation(start.server_incarnation), now));
  table.RememberEnds(table_);
  table_ = std::move(table);
  connections_.clear();
  live_workers_.reset();
  if (start.beginning.has_value()) beginning_ = start.beginning;
  empty_folder_ = std::move(start.empty_folder);
  return absl::OkStatus();
}

const WorkerConnection& Membership::ConnectionOf(WorkerId worker) const {
  const auto found = connections_.find(worker);
  return found == connections_.end() ? unknown_ : found->second;
}

bool Membership::IsMember(const messages::WorkerLife& life) const {
  return Check(life).ok() && table_.Find(life.worker)->is_member();
}

messages::LiveWorkers Membership::live_workers() const {
  const int64_t num_life_changes = table_.num_life_changes();
  if (live_workers_.has_value() && live_workers_->num_life_changes == num_life_changes) {
    return live_workers_->workers;
  }
  std::optional<uint32_t> lowest;
  messages::LiveWorkers workers;
  for (const auto& [id, record] : table_.workers()) {
    if (!record.is_alive()) continue;
    ++workers.count;
    const std::optional<uint32_t>& index = ConnectionOf(id).memory().index;
    if (index.has_value()) lowest = std::min(*index, lowest.value_or(*index));
  }
  workers.lowest_index = lowest.value_or(0);
  live_workers_ = {workers, num_life_changes};
  return workers;
}

uint32_t Membership::FreeIndex() const {
  std::set<uint32_t> held;
  for (const auto& [id, record] : table_.workers()) {
    const std::optional<uint32_t>& index = ConnectionOf(id).memory().index;
    if (record.is_alive() && index.has_value()) held.insert(*index);
  }
  uint32_t free = 0;
  while (held.contains(free)) ++free;
  return free;
}

bool Membership::IsLastMember(WorkerId worker) const {
  const std::vector<const WorkerRecord*> members = table_.Members();
  return members.size() == 1 && members.front()->id == worker;
}

bool Membership::GoesOn(const messages::RegisterCall& call) const {
  const WorkerRecord* record = table_.FindByName(call.name);
  return record != nullptr && record->is_alive() && record->instance_id == call.instance_id;
}

std::optional<std::string> Membership::PeerOfHolder(const messages::RegisterCall& call) const {
  const WorkerRecord* record = table_.FindByName(call.name);
  if (record == nullptr || !record->is_alive() || record->instance_id == call.instance_id) {
    return std::nullopt;
  }
  const std::string& peer = ConnectionOf(record->id).peer();
  if (peer.empty()) return std::nullopt;
  return peer;
}

bool Membership::LacksAcknowledged(const messages::RegisterCall& call,
                                   const KnownReports& known) const {
  if (!call.process.acknowledged.has_value()) return false;
  const messages::AcknowledgedReport& report = *call.process.acknowledged;
  const WorkerRecord* const record = table_.FindByName(call.name);
  const bool is_held = record != nullptr && record->is_alive();
  if (is_held && record->instance_id != call.instance_id) return false;
  if (report.server_incarnation != known.server_incarnation) {
    return report.server_incarnation > known.server_incarnation;
  }
  // Reports of the final evaluation are for the round next_round. So only a higher round shows that
  // these servers lack the report.
  if (report.round > known.next_round) return true;
  if (report.life > table_.last_incarnation()) return true;
  return is_held && record->incarnation == report.life &&
         known.last_reported < report.round.value();
}

std::optional<MemberRefusal> Membership::CheckFrozen(const messages::RegisterCall& call) const {
  if (call.frozen_hash.empty()) return std::nullopt;
  for (const auto& [worker, connection] : connections_) {
    const std::string& others = connection.memory().frozen_hash;
    if (others.empty() || others == call.frozen_hash) continue;
    const WorkerRecord* const record = table_.Find(worker);
    if (record == nullptr || !record->is_alive() || record->name == call.name) continue;
    return MemberRefusal{.kind = MemberRefusal::Kind::kOtherFrozen, .subject = record->name};
  }
  return std::nullopt;
}

std::optional<MemberRefusal> Membership::CheckRoom(absl::string_view name,
                                                   int64_t max_members) const {
  const std::vector<const WorkerRecord*> members = table_.Members();
  const int64_t others =
      std::count_if(members.begin(), members.end(),
                    [name](const WorkerRecord* member) { return member->name != name; });
  if (others < max_members) return std::nullopt;
  return MemberRefusal{
      .kind = MemberRefusal::Kind::kNoRoom, .present = others, .allowed = max_members};
}

std::vector<WorkerId> Membership::WorkersOf(absl::string_view certificate) const {
  std::vector<WorkerId> workers;
  if (certificate.empty()) return workers;
  for (const auto& [worker, connection] : connections_) {
    if (connection.identity() == certificate && table_.Find(worker) != nullptr) {
      workers.push_back(worker);
    }
  }
  return workers;
}

std::optional<MemberRefusal> Membership::CheckNames(const messages::RegisterCall& call,
                                                    const NameFacts& facts) const {
  int64_t names = 0;
  for (const WorkerId worker : WorkersOf(call.identity)) {
    const WorkerRecord& record = *table_.Find(worker);
    if (record.name != call.name) {
      if (record.is_alive()) ++names;
    } else if (record.is_alive() || facts.has_completed_round) {
      return std::nullopt;
    }
  }
  const int64_t allowed =
      std::max(kNamesPerCertificate, facts.workers_needed) + facts.rounds_completed;
  if (names < allowed) return std::nullopt;
  return MemberRefusal{.kind = MemberRefusal::Kind::kTooManyNames,
                       .subject = call.identity,
                       .present = names,
                       .allowed = allowed,
                       .rounds_completed = facts.rounds_completed};
}

std::optional<WorkerId> Membership::GoneHolder(const messages::RegisterCall& call,
                                               absl::Time now) const {
  if (!call.holder_is_gone || !PeerOfHolder(call).has_value()) return std::nullopt;
  const WorkerRecord& holder = *table_.FindByName(call.name);
  // If the holder lives, it sends a heartbeat over another connection within this time.
  if (now - holder.renewed_at < heartbeat_interval() + kLateHeartbeat) return std::nullopt;
  return holder.id;
}

MemberAlarm Membership::CountLacking(const messages::RegisterCall& call) {
  return {.kind = MemberAlarm::Kind::kLacksReport,
          .worker = call.name,
          .round = call.process.acknowledged->round,
          .is_one_of_many = ++num_lacking_reports_ > kMostNamed};
}

std::optional<MemberAlarm> Membership::TakeFormerStart(const messages::RegisterCall& call,
                                                       uint64_t server_incarnation) {
  const std::optional<messages::AcknowledgedReport>& report = call.process.acknowledged;
  if (empty_folder_.empty() || !report.has_value() ||
      report->server_incarnation >= server_incarnation) {
    return std::nullopt;
  }
  return MemberAlarm{.kind = MemberAlarm::Kind::kFormerStart,
                     .worker = call.name,
                     .round = report->round,
                     .folder = std::exchange(empty_folder_, "")};
}

std::optional<MemberAlarm> Membership::FindOtherServers(const messages::RegisterCall& call) const {
  if (!call.process.acknowledged.has_value() || !beginning_.has_value()) return std::nullopt;
  const messages::AcknowledgedReport& report = *call.process.acknowledged;
  if (report.server_incarnation >= beginning_->server_incarnation ||
      report.server_incarnation == beginning_->saved_by) {
    return std::nullopt;
  }
  // A checkpoint lists the workers whose contributions it contains. It leaves out workers whose
  // lives ended long ago.
  const bool is_unknown = table_.FindByName(call.name) == nullptr;
  // Servers that continued from this checkpoint, or from a later one, handed out no round below
  // next_round.
  const bool is_of_other_round = report.server_incarnation > beginning_->saved_by &&
                                 report.round.value() < beginning_->next_round;
  if (!is_unknown && !is_of_other_round) return std::nullopt;
  return MemberAlarm{
      .kind = MemberAlarm::Kind::kOtherServers, .worker = call.name, .round = report.round};
}

absl::StatusOr<Membership::Admitted> Membership::Register(const messages::RegisterCall& call,
                                                          uint64_t map_version, absl::Time now) {
  std::optional<MemberAlarm> alarm = FindOtherServers(call);
  ASSIGN_OR_RETURN(const MembershipTable::Admission admission,
                   table_.Register(call.name, call.instance_id, now));
  Admitted admitted = {.life = {admission.id, admission.incarnation},
                       .is_new_life = !admission.is_reconnect};
  WorkerConnection& connection = connections_[admission.id];
  if (admitted.is_new_life) {
    admitted.is_same_process = connection.BeginLife(call);
    if (alarm.has_value()) alarm->is_one_of_many = ++num_of_other_servers_ > kMostNamed;
    admitted.alarm = std::move(alarm);
  }
  if (!connection.memory().index.has_value()) {
    connection.GiveIndex(FreeIndex());
    live_workers_.reset();
  }
  connection.OnRegistered(call.peer, map_version);
  closed_connections_.OnHeard(admitted.life, call.peer);
  return admitted;
}

absl::Status Membership::Join(const messages::WorkerLife& life, absl::Time now) {
  RETURN_IF_ERROR(table_.Join(life.worker, life.incarnation, now));
  callers_.Forget(table_.Find(life.worker)->name);
  return absl::OkStatus();
}

std::optional<EndedLife> Membership::Drop(WorkerId worker, absl::string_view reason,
                                          absl::Time now) {
  absl::StatusOr<EndedLife> ended =
      table_.Drop(worker, table_.Find(worker)->incarnation, reason, now);
  if (!ended.ok()) return std::nullopt;
  return *std::move(ended);
}

std::vector<EndedLife> Membership::DropWhere(absl::FunctionRef<bool(absl::string_view name)> which,
                                             absl::string_view reason, absl::Time now) {
  // The loop collects all workers before any is dropped, because Drop() may remove entries of the
  // table.
  std::vector<WorkerId> dropped;
  for (const auto& [id, record] : table_.workers()) {
    if (record.is_alive() && which(record.name)) dropped.push_back(id);
  }
  std::vector<EndedLife> ended;
  for (const WorkerId worker : dropped) ended.push_back(*Drop(worker, reason, now));
  return ended;
}

std::vector<WorkerId> Membership::ForgetGone() {
  std::vector<WorkerId> gone;
  std::erase_if(connections_, [&](const auto& connection) {
    if (table_.Find(connection.first) != nullptr) return false;
    gone.push_back(connection.first);
    return true;
  });
  return gone;
}

void Membership::OnHeard(const messages::WorkerLife& life, const std::string& peer) {
  if (!Check(life).ok()) return;
  connections_[life.worker].OnHeardFrom(peer);
  closed_connections_.OnHeard(life, peer);
}

bool Membership::OnHeartbeat(const messages::HeartbeatCall& call, uint64_t map_version) {
  WorkerConnection& connection = connections_.at(call.life.worker);
  if (!connection.Follows(call, map_version)) return false;
  connection.OnHeartbeat(call);
  return true;
}

void Membership::OnConnectionEnded(const messages::WorkerLife& life, const std::string& peer,
                                   bool by_peer, absl::Time now) {
  if (Check(life).ok()) closed_connections_.OnEnded(life, peer, by_peer, now);
}

Membership::Unconnected Membership::JudgeUnconnected(WorkerId awaited, absl::Duration long_round,
                                                     absl::Time now) {
  Unconnected unconnected;
  if (IsLastMember(awaited)) return unconnected;
  unconnected.life = {awaited, table_.Find(awaited)->incarnation};
  const absl::Duration patience =
      std::max({kLeastPatience, kRoundTrips * ConnectionOf(awaited).path().round_trip,
                kShareOfRound * long_round});
  unconnected.verdict = closed_connections_.Judge(unconnected.life, patience, now);
  if (unconnected.verdict == ClosedConnections::Verdict::kEnd) {
    unconnected.closed_for = closed_connections_.ClosedFor(unconnected.life, now);
  }
  return unconnected;
}

bool Membership::NoteAnswer(absl::string_view name, absl::string_view peer,
                            const absl::Status& answer, absl::Time now) {
  const bool is_final = answer.ok() || IsJobOver(answer);
  if (!is_final && (absl::IsUnavailable(answer) || absl::IsAlreadyExists(answer))) {
    NoteWaiting(name, peer, answer, now);
    return false;
  }
  callers_.Forget(name);
  if (answer.ok()) refusals_.Forget(name);
  return !is_final && NoteRefusal(name, peer, answer, now);
}

bool Membership::NoteRefusal(absl::string_view name, absl::string_view peer,
                             const absl::Status& reason, absl::Time now) {
  // Only a final refusal is noted: after any other refusal, the worker tries again by itself.
  return RemedyFor(reason) == Remedy::kGiveUp && refusals_.Note(name, peer, reason, now);
}

}  // namespace lodestar::membership
