// Lives of workers: registration, joining, heartbeats, leaving, leases.
#include "server/coordinator/coordinator.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/remedy.h"
#include "common/shard_plan.h"
#include "common/status_macros.h"

namespace lodestar {
namespace {

// Whether the client knows the encodings of the job.
absl::Status CheckEncodings(const JobSpec& job, const std::vector<Encoding>& known) {
  for (const auto& [encoding, flag] : {std::pair(job.push_encoding, "push_encoding"),
                                       std::pair(job.pull_encoding, "pull_encoding")}) {
    if (std::find(known.begin(), known.end(), encoding) != known.end()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "this job has --", flag, "=", EncodingName(encoding), ", this client knows ",
        absl::StrJoin(
            known, ", ",
            [](std::string* out, Encoding one) { absl::StrAppend(out, EncodingName(one)); }),
        "; use another client, or start the job with --", flag, "=", EncodingName(known.front())));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Create(Config config, absl::Time now) {
  RETURN_IF_ERROR(ValidateJobSpec(config.job));
  if (config.num_shards < 1 || config.num_shards > kMaxServers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--shard=0/", config.num_shards, ": the number of shards must be 1 to ", kMaxServers));
  }
  if (config.lease < absl::Milliseconds(100)) {
    return absl::InvalidArgumentError(absl::StrCat("--lease=", absl::FormatDuration(config.lease),
                                                   " is too short; at least 100ms"));
  }
  std::optional<Layout> layout;
  if (!std::holds_alternative<ClientModelSpec>(config.job.model.architecture)) {
    ASSIGN_OR_RETURN(layout, BuildLayout(config.job.model));
  }
  return std::unique_ptr<Coordinator>(new Coordinator(std::move(config), std::move(layout), now));
}

Coordinator::Coordinator(Config config, std::optional<Layout> layout, absl::Time now)
    : CoordinatorFacts(std::move(config), std::move(layout), now) {}

void Coordinator::Command(ShardCommand command) { effects_.emplace_back(std::move(command)); }

void Coordinator::Do(CheckpointTask task) { effects_.emplace_back(std::move(task)); }

void Coordinator::Tell(absl::string_view event) {
  effects_.emplace_back(Announcement(Event{std::string(event)}));
}

absl::StatusOr<RegisterAnswer> Coordinator::Register(const RegisterCall& call, absl::Time now) {
  absl::StatusOr<RegisterAnswer> answer = Admit(call, now);
  if (answer.ok()) {
    refusals_.Forget(call.name);
  } else {
    NoteRefusal(call.name, call.peer, answer.status(), now);
  }
  return answer;
}

void Coordinator::NoteRefusal(absl::string_view name, absl::string_view peer,
                              const absl::Status& reason, absl::Time now) {
  // Others try again by themselves.
  if (RemedyFor(reason) != Remedy::kGiveUp) return;
  if (!refusals_.Note(name, peer, reason, now)) return;
  Tell(absl::StrCat("worker refused name=", absl::CHexEscape(name), " peer=", peer,
                    " reason=", reason.message()));
}

absl::StatusOr<RegisterAnswer> Coordinator::Admit(const RegisterCall& call, absl::Time now) {
  RETURN_IF_ERROR(CheckEncodings(config_.job, call.encodings));
  if (phase_ == CoordinatorPhase::kAwaitingLayout) RETURN_IF_ERROR(AdoptLayout(call, now));
  RETURN_IF_ERROR(CheckReady(now));
  if (is_shard_away()) {
    return absl::UnavailableError(
        absl::StrCat("not ready: ", WaitingFor(now), "; the same call again"));
  }
  if (call.layout.has_value()) {
    absl::Status same = CheckSameLayout(*layout_, "the job", *call.layout, "this client");
    if (!same.ok()) return absl::InvalidArgumentError(same.message());
  }
  RETURN_IF_ERROR(CheckSound(call));
  ASSIGN_OR_RETURN(const MembershipTable::Admission admission,
                   membership_.Register(call.name, call.instance_id, now));
  WorkerDesk& desk = desks_[admission.id];
  if (admission.is_reconnect) {
    desk.SetPeer(call.peer);
  } else {
    desk.BeginLife(call);
    Tell(absl::StrCat("worker registered name=", call.name, " worker=", admission.id.value(),
                      " incarnation=", admission.incarnation.value(), " peer=", call.peer));
  }
  RegisterAnswer answer;
  answer.worker = admission.id;
  answer.incarnation = admission.incarnation;
  answer.server_incarnation = server_incarnation_;
  answer.lease = config_.lease;
  answer.heartbeat = config_.lease / 3;
  answer.map = map_;
  answer.needs_initial_weights = supply_.Claim({admission.id, admission.incarnation});
  return answer;
}

absl::Status Coordinator::CheckSound(const RegisterCall& call) const {
  const WorkerRecord* record = membership_.FindByName(call.name);
  const auto desk = record == nullptr ? desks_.end() : desks_.find(record->id);
  if (desk == desks_.end() || !desk->second.IsSick(call.instance_id)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "worker '", call.name,
      "' has sent NaN or Inf again and again, while the numbers of others were finite; check its "
      "device, its memory and its data, then start it again"));
}

absl::StatusOr<ViewId> Coordinator::Join(const WorkerLife& life, absl::string_view layout_hash,
                                         const DatasetClaim& dataset, absl::Time now) {
  RETURN_IF_ERROR(membership_.Renew(life.worker, life.incarnation, now));
  RETURN_IF_ERROR(CheckReady(now));
  std::vector<const WorkerRecord*> members = membership_.Members();
  if (membership_.Find(life.worker)->is_member()) return membership_.view();
  absl::Status admitted = CheckLayoutHash(layout_hash);
  if (admitted.ok()) {
    DatasetClaim claim = dataset;
    claim.claimant = NameOf(life.worker);
    admitted = ledger_.AdmitWorker(life.worker, claim);
  }
  if (!admitted.ok()) {
    NoteRefusal(NameOf(life.worker), desks_[life.worker].peer(), admitted, now);
    return admitted;
  }
  int64_t slowest = members.empty() ? 0 : desks_[members.front()->id].progress();
  for (const WorkerRecord* member : members) {
    slowest = std::min(slowest, desks_[member->id].progress());
  }
  RETURN_IF_ERROR(membership_.Join(life.worker, life.incarnation, now));
  desks_[life.worker].set_progress(slowest);
  supply_.OnJoined(life);
  Tell(absl::StrCat(
      "worker joined name=", NameOf(life.worker), " worker=", life.worker.value(),
      " view=", membership_.view().value(), " data=", dataset.own_partition ? "own" : "shared",
      " fingerprint=", dataset.fingerprint, " train_samples=", dataset.num_train_samples,
      " heldout_samples=", dataset.num_heldout_samples));
  AnnounceMembers();
  Touch();
  Advance(now);
  return membership_.view();
}

absl::Status Coordinator::CheckLayoutHash(absl::string_view layout_hash) const {
  if (layout_hash == layout_->hash()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("layout hash of this worker is ", layout_hash,
                                                    ", the job's is ", layout_->hash(),
                                                    "; build the model from the job's settings"));
}

absl::StatusOr<HeartbeatAnswer> Coordinator::Heartbeat(const HeartbeatCall& call, absl::Time now) {
  if (call.standstill.has_value() && call.standstill->shard >= config_.num_shards) {
    return absl::InvalidArgumentError(absl::StrCat("standstill.shard=", call.standstill->shard,
                                                   ", but the cluster has ", config_.num_shards,
                                                   " shards"));
  }
  RETURN_IF_ERROR(membership_.Renew(call.life.worker, call.life.incarnation, now));
  desks_[call.life.worker].OnHeartbeat(call, now);
  HeartbeatAnswer answer;
  answer.view = membership_.view();
  // A round takes its time; only one that is older than a worker could be silent is worth a word.
  const bool is_usual = !open_.empty() && now - open_.begin()->second.opened_at() < config_.lease;
  if (!is_usual) answer.waiting_for = WaitingFor(now);
  return answer;
}

absl::Status Coordinator::Leave(const WorkerLife& life, absl::string_view reason,
                                const std::optional<GrantReport>& report, absl::Time now) {
  RETURN_IF_ERROR(membership_.Check(life.worker, life.incarnation));
  // A report that does not fit is no reason to stay.
  if (report.has_value()) CountReport(life.worker, *report, now).IgnoreError();
  ASSIGN_OR_RETURN(const EndedLife ended,
                   membership_.Leave(life.worker, life.incarnation, reason, now));
  EndLives({ended}, now);
  return absl::OkStatus();
}

void Coordinator::Tick(absl::Time now) {
  LookForSilence(now);
  EndLives(membership_.Expire(now), now);
  DropStalled(now);
  TellWait(now);
  if (now < drop_missing_at_) return;
  drop_missing_at_ = absl::InfiniteFuture();
  DropMissing(now);
}

void Coordinator::TellWait(absl::Time now) {
  if (!waits_.IsDue(now)) return;
  if (!waits_.Look(WaitingFor(now, Ages::kLeftOut), WaitPatience(), now)) return;
  Tell(absl::StrCat("cluster ", WaitingFor(now)));
}

void Coordinator::RaiseAlarm(absl::string_view text, absl::Time now, AlarmKind kind) {
  if (alarms_.Raise(text, now, kind)) effects_.push_back(Announcement(Alarm{std::string(text)}));
}

absl::Status Coordinator::AdoptLayout(const RegisterCall& call, absl::Time now) {
  if (!call.layout.has_value()) {
    return absl::UnavailableError(
        "not ready: waits for a client that brings the layout of its model; the same call again");
  }
  layout_ = call.layout;
  absl::Status assigned = Assign(now);
  if (!assigned.ok()) layout_.reset();
  return assigned;
}

void Coordinator::EndLives(const std::vector<EndedLife>& lives, absl::Time now) {
  bool view_changed = false;
  bool supplier_lost = false;
  for (const EndedLife& life : lives) {
    desks_[life.id].EndLife();
    ledger_.ReleaseWorker(life.id);
    for (auto& [number, round] : open_) round.Lose(life.id);
    Command(DropCommand{life.id, life.incarnation, life.reason});
    Tell(absl::StrCat("worker ended name=", life.name, " worker=", life.id.value(),
                      " incarnation=", life.incarnation.value(), " reason=", life.reason));
    view_changed |= life.was_member;
    supplier_lost |= supply_.OnEnded(life.incarnation);
  }
  std::erase_if(desks_, [this](const auto& desk) {
    return membership_.Find(desk.first) == nullptr;  // forgotten
  });
  if (view_changed) AnnounceMembers();
  if (!lives.empty()) Touch();
  // All start over, so that another one learns that it has to supply the weights.
  if (supplier_lost) return DropAll("the client that was to supply the weights is gone", now);
  Advance(now);
}

void Coordinator::DropAll(absl::string_view reason, absl::Time now) {
  std::vector<WorkerLife> lives;
  for (const auto& [id, record] : membership_.workers()) {
    if (record.is_alive()) lives.push_back({id, record.incarnation});
  }
  std::vector<EndedLife> ended;
  for (const WorkerLife& life : lives) {
    ended.push_back(*membership_.Drop(life.worker, life.incarnation, reason, now));
  }
  EndLives(ended, now);
}

void Coordinator::AnnounceMembers() {
  // A shard that knows of members takes no first weights any more.
  if (supply_.is_awaited()) return;
  Command(Members());
}

MembersCommand Coordinator::Members() const {
  MembersCommand command = {.view = membership_.view(), .members = {}};
  for (const WorkerRecord* record : membership_.Members()) {
    command.members.push_back({record->id, record->incarnation, 0});
  }
  return command;
}

}  // namespace lodestar
