// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/shard_convert.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/params/bucket_plan.h"
#include "common/runtime/overloaded.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"
#include "proto/bulk_options.h"
#include "proto/convert.h"
#include "proto/convert_cluster.h"

namespace lodestar::rpc {
namespace {

// Round number in a Save command that captures each bucket in its current state.
constexpr int64_t kAnyRound = -1;
// Maximum size of the text in which a server describes trouble with its journal.
constexpr size_t kMaxTroubleBytes = 1024;
// Maximum size of all other texts, such as the reason of an error.
constexpr size_t kMaxReasonBytes = 2048;
constexpr size_t kMaxReplicaBytes = 256;
// Maximum size of a manifest part. It is below the limit for messages on the control channel.
constexpr size_t kMaxManifestPartBytes = wire::kMaxMessageBytes - (1 << 20);

absl::StatusOr<shards::WeightsSource> SourceFromProto(const v1::ShardCommand::Assign& assign) {
  switch (assign.source_case()) {
    case v1::ShardCommand::Assign::kInitial:
      return shards::InitialSource{};
    case v1::ShardCommand::Assign::kCheckpoint:
      return shards::CheckpointSource{assign.checkpoint()};
    case v1::ShardCommand::Assign::kSafetensors:
      return shards::SafetensorsSource{assign.safetensors()};
    case v1::ShardCommand::Assign::kClientSupplies:
      return shards::ClientSource{};
    case v1::ShardCommand::Assign::SOURCE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "the coordinator's assign.source is missing or unknown to this release; use the same release "
      "on all servers");
}

// Returns the layout. If the model is a known one, the layout gets its initialisers, because they
// are not sent.
absl::StatusOr<params::Layout> LayoutOf(const v1::ShardCommand::Assign& assign,
                                        const job::JobSpec& job) {
  ASSIGN_OR_RETURN(params::Layout received, wire::FromProto(assign.layout()));
  if (std::holds_alternative<params::ClientModelSpec>(job.model.architecture)) return received;
  return params::RecognizeLayout(job.model, "this server", received, "the coordinator");
}

void SetAssign(const shards::AssignCommand& command, v1::ShardCommand::Assign* assign) {
  assign->set_server_incarnation(command.server_incarnation);
  *assign->mutable_job() = wire::ToProto(command.job);
  *assign->mutable_layout() = wire::ToProto(command.map->layout);
  assign->set_checkpoint_dir(command.folder.path);
  assign->set_folder_claim_id(command.folder.claim_id);
  assign->set_life_key(command.life_key);
  for (const messages::ServerAddress& server : command.map->servers) {
    *assign->add_servers() = wire::ToProto(server);
  }
  std::visit(
      Overloaded{
          [&](const shards::InitialSource&) { assign->set_initial(true); },
          [&](const shards::CheckpointSource& source) { assign->set_checkpoint(source.directory); },
          [&](const shards::SafetensorsSource& source) { assign->set_safetensors(source.path); },
          [&](const shards::ClientSource&) { assign->set_client_supplies(true); },
      },
      command.source);
}

absl::StatusOr<shards::AssignCommand> AssignFromProto(const v1::ShardCommand::Assign& assign) {
  shards::AssignCommand result;
  ASSIGN_OR_RETURN(result.job, wire::FromProto(assign.job()));
  result.server_incarnation = assign.server_incarnation();
  result.folder = {assign.checkpoint_dir(), assign.folder_claim_id()};
  result.life_key = assign.life_key();
  ASSIGN_OR_RETURN(result.source, SourceFromProto(assign));
  auto map = std::make_shared<messages::ClusterMap>();
  ASSIGN_OR_RETURN(map->layout, LayoutOf(assign, result.job));
  std::vector<params::ElementRange> ranges;
  ASSIGN_OR_RETURN(map->servers, wire::FromProto(assign.servers()));
  for (const messages::ServerAddress& server : map->servers) ranges.push_back(server.range);
  ASSIGN_OR_RETURN(map->buckets, params::PlanBuckets(map->layout, ranges, result.job.bucket_bytes));
  result.map = std::move(map);
  return result;
}

void SetRecord(const shards::CoordinatorRecord& record, v1::CoordinatorRecord* wire) {
  wire->set_journal_id(record.journal_id);
  wire->set_number(record.number);
}

template <typename Members>
void SetMembers(const std::vector<sync::RosterMember>& members, Members* wire) {
  for (const sync::RosterMember& member : members) *wire->Add() = ToProto(member);
}

template <typename Members>
std::vector<sync::RosterMember> MembersFromProto(const Members& wire) {
  std::vector<sync::RosterMember> members;
  for (const v1::RosterMember& member : wire) members.push_back(FromProto(member));
  return members;
}

v1::ShardReport::Fault FaultToProto(const sync::WorkerFault& fault) {
  v1::ShardReport::Fault result;
  result.set_worker_id(fault.worker.value());
  result.set_incarnation(fault.incarnation.value());
  result.set_round(fault.round.value());
  switch (fault.kind) {
    case sync::WorkerFault::Kind::kNotFinite:
      result.set_kind(v1::ShardReport::Fault::KIND_NOT_FINITE);
      break;
    case sync::WorkerFault::Kind::kNotPushed:
      result.set_kind(v1::ShardReport::Fault::KIND_NOT_PUSHED);
      break;
    case sync::WorkerFault::Kind::kTooLong:
      result.set_kind(v1::ShardReport::Fault::KIND_TOO_LONG);
      break;
    case sync::WorkerFault::Kind::kOpposed:
      result.set_kind(v1::ShardReport::Fault::KIND_OPPOSED);
      break;
    case sync::WorkerFault::Kind::kUnrelated:
      result.set_kind(v1::ShardReport::Fault::KIND_UNRELATED);
      break;
  }
  result.set_text(fault.text);
  return result;
}

absl::StatusOr<sync::WorkerFault> FaultFromProto(const v1::ShardReport::Fault& fault) {
  sync::WorkerFault result = {.worker = WorkerId(fault.worker_id()),
                              .incarnation = Incarnation(fault.incarnation()),
                              .round = Round(fault.round()),
                              .text = PeerText(fault.text(), kMaxReasonBytes)};
  switch (fault.kind()) {
    case v1::ShardReport::Fault::KIND_NOT_FINITE:
      result.kind = sync::WorkerFault::Kind::kNotFinite;
      return result;
    case v1::ShardReport::Fault::KIND_NOT_PUSHED:
      result.kind = sync::WorkerFault::Kind::kNotPushed;
      return result;
    case v1::ShardReport::Fault::KIND_TOO_LONG:
      result.kind = sync::WorkerFault::Kind::kTooLong;
      return result;
    case v1::ShardReport::Fault::KIND_OPPOSED:
      result.kind = sync::WorkerFault::Kind::kOpposed;
      return result;
    case v1::ShardReport::Fault::KIND_UNRELATED:
      result.kind = sync::WorkerFault::Kind::kUnrelated;
      return result;
    default:
      return absl::InvalidArgumentError(
          "this release does not know the kind of this fault; use the same release on all servers");
  }
}

void SetSaved(const shards::ShardSaved& saved, int shard, v1::ShardReport::Saved* result) {
  result->set_directory(saved.directory);
  const absl::StatusOr<std::string>& part = saved.manifest_part;
  if (part.ok() && part->size() > kMaxManifestPartBytes) {
    result->set_error(absl::StrCat("the manifest of shard ", shard, " has ", part->size(),
                                   " bytes; at most ", kMaxManifestPartBytes, " can be sent"));
  } else if (part.ok()) {
    result->set_manifest_part(*part);
  } else {
    result->set_error(std::string(part.status().message()));
  }
}

}  // namespace

v1::ShardCommand ToProto(const shards::ShardCommand& command,
                         const shards::CoordinatorRecord& follows) {
  v1::ShardCommand wire;
  if (follows.journal_id != 0) SetRecord(follows, wire.mutable_follows());
  std::visit(
      Overloaded{
          [&](const shards::AssignCommand& assign) { SetAssign(assign, wire.mutable_assign()); },
          [&](const shards::OpenRoundCommand& open) {
            *wire.mutable_open_round() = ToProto(open.plan);
          },
          [&](const shards::CloseRoundCommand& close) {
            wire.mutable_close_round()->set_round(close.round.value());
            SetMembers(close.reported, wire.mutable_close_round()->mutable_reported());
          },
          [&](const shards::MembersCommand& members) {
            wire.mutable_members()->set_view_id(members.view.value());
            SetMembers(members.members, wire.mutable_members()->mutable_members());
          },
          [&](const shards::DropCommand& drop) {
            wire.mutable_drop()->set_worker_id(drop.worker.value());
            wire.mutable_drop()->set_incarnation(drop.incarnation.value());
            wire.mutable_drop()->set_reason(drop.reason);
          },
          [&](const shards::SaveCommand& save) {
            wire.mutable_save()->set_round(save.round.value_or(Round(kAnyRound)).value());
            wire.mutable_save()->set_directory(save.directory);
            wire.mutable_save()->set_folder_claim_id(save.folder_claim_id);
          },
          [&](const shards::PublishedCommand& published) {
            wire.mutable_published()->set_directory(published.directory);
            wire.mutable_published()->set_path(published.path);
            wire.mutable_published()->set_round(published.round.value());
          },
          [&](const shards::NormTotalCommand& norm) {
            wire.mutable_norm_total()->set_round(norm.round.value());
            wire.mutable_norm_total()->set_total_square_sum(norm.total_square_sum);
          },
          [&](const shards::AskConnectionsCommand& ask) {
            wire::SetLife(ask.life, wire.mutable_ask_connections());
          },
          [&](const shards::StopCommand& stop) {
            wire.mutable_stop()->set_failure(stop.failure);
            wire.mutable_stop()->set_instance_id(stop.instance_id);
          },
      },
      command);
  return wire;
}

absl::StatusOr<shards::ShardCommand> FromProto(const v1::ShardCommand& command) {
  switch (command.command_case()) {
    case v1::ShardCommand::kAssign:
      return AssignFromProto(command.assign());
    case v1::ShardCommand::kOpenRound: {
      ASSIGN_OR_RETURN(sync::RoundPlan plan, FromProto(command.open_round()));
      return shards::OpenRoundCommand{std::move(plan)};
    }
    case v1::ShardCommand::kCloseRound:
      return shards::CloseRoundCommand{Round(command.close_round().round()),
                                       MembersFromProto(command.close_round().reported())};
    case v1::ShardCommand::kMembers:
      return shards::MembersCommand{ViewId(command.members().view_id()),
                                    MembersFromProto(command.members().members())};
    case v1::ShardCommand::kDrop:
      return shards::DropCommand{WorkerId(command.drop().worker_id()),
                                 Incarnation(command.drop().incarnation()),
                                 PeerText(command.drop().reason(), kMaxReasonBytes)};
    case v1::ShardCommand::kSave: {
      shards::SaveCommand save = {.round = std::nullopt,
                                  .directory = command.save().directory(),
                                  .folder_claim_id = command.save().folder_claim_id()};
      if (command.save().round() >= 0) save.round = Round(command.save().round());
      return save;
    }
    case v1::ShardCommand::kPublished:
      return shards::PublishedCommand{command.published().directory(), command.published().path(),
                                      Round(command.published().round())};
    case v1::ShardCommand::kNormTotal:
      return shards::NormTotalCommand{Round(command.norm_total().round()),
                                      command.norm_total().total_square_sum()};
    case v1::ShardCommand::kAskConnections:
      return shards::AskConnectionsCommand{wire::LifeFromProto(command.ask_connections())};
    case v1::ShardCommand::kStop:
      return shards::StopCommand{PeerText(command.stop().failure(), kMaxReasonBytes),
                                 command.stop().instance_id()};
    case v1::ShardCommand::COMMAND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "this release does not know this command; use the same release on all servers");
}

shards::CoordinatorRecord FromProto(const v1::CoordinatorRecord& record) {
  return {record.journal_id(), record.number()};
}

void SetJournal(const shards::JournalPlace& journal, v1::AttachShardRequest* request) {
  request->set_journal_end(journal.end);
  request->set_first_segment(journal.first_segment);
  request->set_process_id(journal.process_id);
  if (journal.follows.journal_id != 0) SetRecord(journal.follows, request->mutable_follows());
  if (journal.highest_round >= 0) request->set_highest_round(journal.highest_round);
}

shards::JournalPlace JournalOf(const v1::AttachShardRequest& request) {
  return {.first_segment = request.first_segment(),
          .end = request.journal_end(),
          .process_id = request.process_id(),
          .follows = FromProto(request.follows()),
          .highest_round = request.has_highest_round() ? request.highest_round() : -1};
}

std::string FormatAssignment(const shards::AssignCommand& assignment) {
  return ToProto(shards::ShardCommand(assignment)).SerializeAsString();
}

absl::StatusOr<shards::AssignCommand> ParseAssignment(absl::string_view bytes) {
  v1::ShardCommand wire;
  if (!wire.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || !wire.has_assign()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the record must name this server's shard and model, but its ", bytes.size(),
                     " bytes are damaged or from another release"));
  }
  return AssignFromProto(wire.assign());
}

void SetEvent(const shards::ShardEvent& event, v1::ShardReport* report) {
  const auto set_life_of_servers = [report](const auto& of_servers) {
    report->set_server_incarnation(of_servers.server_incarnation);
  };
  std::visit(
      Overloaded{
          [&](const shards::ShardLoaded& loaded) {
            set_life_of_servers(loaded);
            report->mutable_loaded()->set_error(std::string(loaded.status.message()));
          },
          [&](const shards::ShardSaved& saved) {
            set_life_of_servers(saved);
            SetSaved(saved, report->shard(), report->mutable_saved());
          },
          [&](const shards::ShardSquareSums& square_sums) {
            set_life_of_servers(square_sums);
            report->mutable_square_sums()->set_round(square_sums.round.value());
            report->mutable_square_sums()->mutable_sums()->Add(square_sums.sums.begin(),
                                                               square_sums.sums.end());
          },
          [&](const shards::ShardDiverged& diverged) {
            set_life_of_servers(diverged);
            report->mutable_diverged()->set_round(diverged.round.value());
            report->mutable_diverged()->set_text(diverged.text);
          },
          [&](const shards::ShardFailing& failing) {
            set_life_of_servers(failing);
            report->mutable_failing()->set_error(std::string(failing.error.message()));
          },
          [&](const shards::ShardConnections& connections) {
            wire::SetLife(connections.life, report->mutable_connections());
            report->mutable_connections()->set_are_closed(connections.are_closed);
          },
          [&](const shards::ShardAlarm& alarm) {
            report->mutable_alarm()->set_text(alarm.text);
            report->mutable_alarm()->set_stays(alarm.ends == shards::ShardAlarm::Ends::kNever);
            report->mutable_alarm()->set_of_certificate(
                alarm.ends == shards::ShardAlarm::Ends::kWithNextOfCertificate);
          },
          [&](const shards::ShardExiting&) { report->mutable_exiting(); },
          [&](const sync::WorkerFault& fault) { *report->mutable_fault() = FaultToProto(fault); },
      },
      event);
}

absl::StatusOr<shards::ShardEvent> EventOf(const v1::ShardReport& report) {
  const uint64_t incarnation = report.server_incarnation();
  switch (report.report_case()) {
    case v1::ShardReport::kLoaded: {
      const std::string error = PeerText(report.loaded().error(), kMaxReasonBytes);
      return shards::ShardLoaded{incarnation,
                                 error.empty() ? absl::OkStatus() : absl::InternalError(error)};
    }
    case v1::ShardReport::kSaved: {
      const v1::ShardReport::Saved& saved = report.saved();
      absl::StatusOr<std::string> part = saved.manifest_part();
      if (!saved.error().empty()) {
        part = absl::InternalError(PeerText(saved.error(), kMaxReasonBytes));
      }
      return shards::ShardSaved{incarnation, saved.directory(), std::move(part)};
    }
    case v1::ShardReport::kSquareSums: {
      const auto& sums = report.square_sums().sums();
      return shards::ShardSquareSums{
          incarnation, Round(report.square_sums().round()), {sums.begin(), sums.end()}};
    }
    case v1::ShardReport::kDiverged:
      return shards::ShardDiverged{incarnation, Round(report.diverged().round()),
                                   PeerText(report.diverged().text(), kMaxReasonBytes)};
    case v1::ShardReport::kFailing:
      return shards::ShardFailing{incarnation, absl::ResourceExhaustedError(PeerText(
                                                   report.failing().error(), kMaxReasonBytes))};
    case v1::ShardReport::kConnections:
      return shards::ShardConnections{wire::LifeFromProto(report.connections()),
                                      report.connections().are_closed()};
    case v1::ShardReport::kAlarm:
      return shards::ShardAlarm{PeerText(report.alarm().text(), kMaxReasonBytes),
                                report.alarm().stays() ? shards::ShardAlarm::Ends::kNever
                                : report.alarm().of_certificate()
                                    ? shards::ShardAlarm::Ends::kWithNextOfCertificate
                                    : shards::ShardAlarm::Ends::kWithJournalTrouble};
    case v1::ShardReport::kExiting:
      return shards::ShardExiting{};
    case v1::ShardReport::kFault: {
      ASSIGN_OR_RETURN(sync::WorkerFault fault, FaultFromProto(report.fault()));
      fault.text = absl::StrCat("shard ", report.shard(), ": ", fault.text);
      return fault;
    }
    case v1::ShardReport::kStats:
    case v1::ShardReport::kContributed:
    case v1::ShardReport::kStopping:
    case v1::ShardReport::REPORT_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "the server's report is missing or unknown to this release; use the same release on all "
      "servers");
}

v1::RosterMember ToProto(const sync::RosterMember& member) {
  v1::RosterMember result;
  result.set_worker_id(member.worker.value());
  result.set_incarnation(member.incarnation.value());
  result.set_num_samples(member.num_samples);
  return result;
}

sync::RosterMember FromProto(const v1::RosterMember& member) {
  return {WorkerId(member.worker_id()), Incarnation(member.incarnation()), member.num_samples()};
}

v1::RoundPlan ToProto(const sync::RoundPlan& plan) {
  v1::RoundPlan result;
  result.set_round(plan.round.value());
  result.set_view_id(plan.view.value());
  result.set_learning_rate(plan.learning_rate);
  for (const sync::RosterMember& member : plan.roster) *result.add_roster() = ToProto(member);
  return result;
}

absl::StatusOr<sync::RoundPlan> FromProto(const v1::RoundPlan& plan) {
  if (plan.round() < 0 || !std::isfinite(plan.learning_rate())) {
    return absl::InvalidArgumentError(
        absl::StrCat("the coordinator's open_round is not valid, because a number in it is "
                     "negative or not finite: round=",
                     plan.round(), " learning_rate=", plan.learning_rate()));
  }
  sync::RoundPlan result;
  result.round = Round(plan.round());
  result.view = ViewId(plan.view_id());
  result.learning_rate = plan.learning_rate();
  for (const v1::RosterMember& member : plan.roster()) {
    const bool is_ascending =
        result.roster.empty() || result.roster.back().worker < WorkerId(member.worker_id());
    if (!is_ascending || member.num_samples() < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the coordinator's open_round is not valid: round=", plan.round(),
          " roster entry worker=", member.worker_id(), " num_samples=", member.num_samples(),
          "; workers must ascend and samples must not be negative"));
    }
    result.roster.push_back(FromProto(member));
  }
  return result;
}

namespace {

v1::ShardReport::Stats::Pusher ToProto(const sync::Pusher& pusher) {
  v1::ShardReport::Stats::Pusher result;
  result.set_worker_id(pusher.worker.value());
  result.set_incarnation(pusher.incarnation.value());
  return result;
}

sync::Pusher FromProto(const v1::ShardReport::Stats::Pusher& pusher) {
  return {WorkerId(pusher.worker_id()), Incarnation(pusher.incarnation())};
}

}  // namespace

v1::ShardReport::Stats ToProto(const shard::ShardStats& stats, uint64_t bytes_received,
                               uint64_t bytes_sent) {
  v1::ShardReport::Stats result;
  result.set_version(stats.version.value());
  result.set_weight_bytes(stats.weight_bytes);
  result.set_resident_bytes(stats.resident_bytes);
  result.set_pending_buckets(stats.pending_buckets);
  result.set_bytes_received(bytes_received);
  result.set_bytes_sent(bytes_sent);
  result.set_contributions_counted(stats.contributions_counted);
  result.set_contributions_duplicate(stats.contributions_duplicate);
  result.set_contributions_late(stats.contributions_late);
  result.set_contributions_rejected(stats.contributions_rejected);
  result.set_contributions_skipped(stats.contributions_skipped);
  for (const uint64_t count : stats.staleness_histogram) result.add_staleness_histogram(count);
  result.set_waiting_for(stats.waiting_for);
  result.set_journal_bytes(static_cast<uint64_t>(stats.journal_bytes));
  result.set_journal_trouble(stats.journal_trouble);
  result.set_journal_replica(stats.journal_replica);
  result.set_journal_end(stats.journal_end);
  for (const sync::UnfinishedPush& push : stats.push_space.unfinished) {
    v1::ShardReport::Stats::UnfinishedPush& wire = *result.add_unfinished_pushes();
    *wire.mutable_pusher() = ToProto(push.pusher);
    wire.set_round(push.round.value());
    wire.set_bucket(push.bucket);
    wire.set_received_bytes(push.received_bytes);
    wire.set_total_bytes(push.total_bytes);
    wire.set_silence_ms(absl::ToInt64Milliseconds(push.silence));
  }
  for (const sync::Pusher& pusher : stats.push_space.held) {
    *result.add_held_pushers() = ToProto(pusher);
  }
  return result;
}

shard::ShardStats FromProto(const v1::ShardReport::Stats& stats) {
  shard::ShardStats result;
  result.version = Version(stats.version());
  result.weight_bytes = stats.weight_bytes();
  result.resident_bytes = stats.resident_bytes();
  result.pending_buckets = stats.pending_buckets();
  result.contributions_counted = static_cast<int64_t>(stats.contributions_counted());
  result.contributions_duplicate = static_cast<int64_t>(stats.contributions_duplicate());
  result.contributions_late = static_cast<int64_t>(stats.contributions_late());
  result.contributions_rejected = static_cast<int64_t>(stats.contributions_rejected());
  result.contributions_skipped = static_cast<int64_t>(stats.contributions_skipped());
  result.staleness_histogram.assign(stats.staleness_histogram().begin(),
                                    stats.staleness_histogram().end());
  result.waiting_for = PeerText(stats.waiting_for(), kMaxReasonBytes);
  result.journal_bytes = static_cast<int64_t>(stats.journal_bytes());
  result.journal_trouble = stats.journal_trouble();
  result.journal_replica = stats.journal_replica();
  result.journal_end = stats.journal_end();
  for (const v1::ShardReport::Stats::UnfinishedPush& push : stats.unfinished_pushes()) {
    result.push_space.unfinished.push_back({.pusher = FromProto(push.pusher()),
                                            .round = Round(push.round()),
                                            .bucket = push.bucket(),
                                            .received_bytes = push.received_bytes(),
                                            .total_bytes = push.total_bytes(),
                                            .silence = absl::Milliseconds(push.silence_ms())});
  }
  for (const v1::ShardReport::Stats::Pusher& pusher : stats.held_pushers()) {
    result.push_space.held.push_back(FromProto(pusher));
  }
  return result;
}

shards::JournalState JournalOf(const shard::ShardStats& stats) {
  return {.bytes = stats.journal_bytes,
          .trouble = PeerText(stats.journal_trouble, kMaxTroubleBytes),
          .replica = PeerText(stats.journal_replica, kMaxReplicaBytes),
          .end = stats.journal_end};
}

}  // namespace lodestar::rpc
