// SPDX-License-Identifier: Apache-2.0

// Fuzzes the messages between workers, servers, replicas and tools, from protobuf to native types:
// proto/ and server/rpc. What is accepted is written again, and must read as the same.

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <memory>
#include <variant>

#include "absl/strings/str_cat.h"
#include "proto/convert.h"
#include "proto/convert_cluster.h"
#include "proto/error_details.pb.h"
#include "proto/peer_texts.h"
#include "proto/registration_scan.h"
#include "proto/status_mapping.h"
#include "server/rpc/replica_convert.h"
#include "server/rpc/shard_convert.h"
#include "tests/fuzz/fuzz_target.h"

namespace lodestar::fuzz {
namespace {

using rpc::FromProto;
using rpc::ToProto;
using wire::FromProto;
using wire::ToProto;

template <typename T>
const T* TakenOf(const absl::StatusOr<T>& native) {
  if (native.ok()) return &*native;
  Refuse(native.status());
  return nullptr;
}
template <typename T>
const T* TakenOf(const T& native) {
  return &native;
}

// Make the checksums over parts of a message valid, as an attacker would.
template <typename Wire>
void MendSums(Wire&) {}
void MendSums(v1::Layout& layout) { layout.clear_hash(); }
void MendSums(v1::RegisterRequest& request) {
  if (request.has_layout()) MendSums(*request.mutable_layout());
}
void MendSums(v1::RegisterReply& reply) {
  if (reply.has_layout()) MendSums(*reply.mutable_layout());
}
void MendSums(v1::ShardCommand& command) {
  if (command.has_assign()) MendSums(*command.mutable_assign()->mutable_layout());
}
void MendSums(v1::MirrorRequest& request) {
  if (!request.has_append()) return;
  const v1::MirrorRequest::Append& append = request.append();
  request = rpc::ToProto(replica::FileChange(replica::AppendChange{append.file(), append.data()}));
}

// Converts only those statistics that the wire has.
v1::ShardReport::Stats ToProto(const shard::ShardStats& stats) { return rpc::ToProto(stats, 0, 0); }

// CountTensors() must find as many tensors as the generated parser.
void CountInRegistration(absl::string_view bytes) {
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  const absl::StatusOr<int64_t> counted = wire::CountTensors(&stream, int64_t{1} << 20);
  v1::RegisterRequest request;
  if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    if (!counted.ok()) Refuse(counted.status());
    return;
  }
  LODESTAR_CHECK(counted.ok()) << counted.status();
  LODESTAR_CHECK(*counted == request.layout().tensors_size()) << *counted;
  Accept();
}

template <typename Wire>
void Convert(const Wire& wire) {
  const auto converted = FromProto(wire);
  const auto* const native = TakenOf(converted);
  if (native == nullptr) return;
  Accept();
  const Wire again = ToProto(*native);
  const auto converted_again = FromProto(again);
  const auto* const back = TakenOf(converted_again);
  LODESTAR_CHECK(back != nullptr) << wire.ShortDebugString() << " became "
                                  << again.ShortDebugString();
  LODESTAR_CHECK(ToProto(*back).SerializeAsString() == again.SerializeAsString())
      << again.ShortDebugString() << " became " << ToProto(*back).ShortDebugString();
}

template <typename Wire>
void ReadMessage(absl::string_view bytes) {
  Wire wire;
  if (!wire.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  static_cast<void>(TakenOf(FromProto(wire)));
  // Reading makes texts safe to show. Only texts that are safe already come back unchanged.
  wire::EscapeTexts(&wire);
  Convert(wire);
  MendSums(wire);
  Convert(wire);
}

void ReadAssignment(absl::string_view bytes) {
  const absl::StatusOr<shards::AssignCommand> assignment = rpc::ParseAssignment(bytes);
  if (!assignment.ok()) return Refuse(assignment.status());
  Accept();
  const std::string again = rpc::FormatAssignment(*assignment);
  const absl::StatusOr<shards::AssignCommand> back = rpc::ParseAssignment(again);
  LODESTAR_CHECK(back.ok()) << back.status();
  LODESTAR_CHECK(rpc::FormatAssignment(*back) == again);
}

void ReadReport(absl::string_view bytes) {
  v1::ShardReport report;
  if (!report.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  const absl::StatusOr<shards::ShardEvent> event = rpc::EventOf(report);
  if (!event.ok()) return Refuse(event.status());
  Accept();
  v1::ShardReport again;
  again.set_shard(report.shard());
  rpc::SetEvent(*event, &again);
  const absl::StatusOr<shards::ShardEvent> back = rpc::EventOf(again);
  LODESTAR_CHECK(back.ok()) << back.status();
  LODESTAR_CHECK(back->index() == event->index()) << again.ShortDebugString();
}

// Input: [code | text, with its length | details]
void ReadStatus(absl::string_view bytes) {
  const auto code = static_cast<grpc::StatusCode>(TakeByte(bytes));
  const std::string text(TakePiece(bytes));
  const absl::Status status = wire::FromGrpcStatus(grpc::Status(code, text, std::string(bytes)));
  if (status.ok()) {
    LODESTAR_CHECK(code == grpc::StatusCode::OK) << code;
    return;
  }
  Refuse(status);
  Accept();
  // The code is passed on unchanged, and so is a text that is short enough.
  const absl::Status again = wire::FromGrpcStatus(wire::ToGrpcStatus(status));
  LODESTAR_CHECK(again.code() == status.code()) << again << " of " << status;
  LODESTAR_CHECK(status.message().size() > 1024 || again.message() == status.message())
      << again << " of " << status;
}

job::JobSpec SomeJob() {
  job::JobSpec job;
  job.model = *params::ModelPreset("gpt-nano");
  job.mode = job::Mode::kLocalSgd;
  job.local_steps = 7;
  job.outer_optimizer = job::OuterOptimizerKind::kNesterov;
  job.outer_learning_rate = 0.65;
  job.optimizer.kind = job::OptimizerKind::kAdamW;
  job.schedule = {job::ScheduleKind::kCosine, 0.01, 0.001, 5, 500};
  job.clip_norm = 1.5;
  job.batch_size = 16;
  job.min_workers = 3;
  job.eval_every = 10;
  job.eval_samples = 64;
  job.bucket_bytes = 1 << 20;
  job.push_encoding = params::Encoding::kInt8;
  job.pull_encoding = params::Encoding::kInt4;
  return job;
}

params::ModelSpec SmallModel() { return {"small", params::MlpSpec{{4, 3, 2}}}; }

std::shared_ptr<const messages::ClusterMap> SmallMap(const job::JobSpec& job) {
  auto map = std::make_shared<messages::ClusterMap>();
  map->version = 4;
  map->layout = *params::BuildLayout(job.model);
  const int64_t half = map->layout.num_elements() / 2;
  map->servers = {{0, "a:1", {0, half}}, {1, "b:2", {half, map->layout.num_elements()}}};
  map->buckets = *params::PlanBuckets(map->layout, {map->servers[0].range, map->servers[1].range},
                                      job.bucket_bytes);
  return map;
}

job::JobSpec SmallJob() {
  job::JobSpec job = SomeJob();
  job.model = SmallModel();
  return job;
}

template <typename Native>
std::string BytesOf(Native native) {
  return ToProto(std::move(native)).SerializeAsString();
}

using Seeds = std::vector<std::string>;

Seeds ModelSeeds() {
  Seeds seeds;
  for (const char* preset : {"gpt-nano", "mlp-mnist", "cnn-cifar10"}) {
    if (const absl::StatusOr<params::ModelSpec> model = params::ModelPreset(preset); model.ok()) {
      seeds.push_back(BytesOf(*model));
    }
  }
  seeds.push_back(BytesOf(SmallModel()));
  return seeds;
}
Seeds LayoutSeeds() { return {BytesOf(*params::BuildLayout(SmallModel()))}; }
Seeds JobSeeds() { return {BytesOf(SomeJob()), BytesOf(SmallJob())}; }
Seeds LossSeeds() {
  job::JobLoss loss;
  loss.train = 1.5;
  loss.train_round = Round(3);
  loss.heldout = 2.5;
  loss.heldout_accuracy = 0.5;
  loss.heldout_round = Round(8);
  return {BytesOf(loss)};
}
Seeds RegisterRequestSeeds() {
  messages::RegisterCall call;
  call.name = "gpu-box";
  call.instance_id = 77;
  call.device = "cpu";
  call.encodings = {params::Encoding::Kind::kFp32, params::Encoding::Kind::kInt8,
                    params::Encoding::Kind::kInt4, params::Encoding::Kind::kTopK2};
  Seeds seeds = {BytesOf(call)};
  call.layout = *params::BuildLayout(SmallModel());
  seeds.push_back(BytesOf(call));
  return seeds;
}
Seeds RegisterReplySeeds() {
  messages::Registration registration;
  registration.life = {WorkerId(3), Incarnation(0xfedcba9876543210)};
  registration.server_incarnation = 9;
  registration.lease = absl::Seconds(10);
  registration.heartbeat_interval = absl::Milliseconds(3333);
  registration.job = SmallJob();
  registration.needs_initial_weights = true;
  registration.map = SmallMap(registration.job);
  return {BytesOf(registration)};
}
Seeds DatasetSeeds() {
  return {BytesOf(messages::DatasetInfo{"0123456789abcdef", 1000, 100, 64, true})};
}
Seeds HeartbeatRequestSeeds() {
  messages::HeartbeatCall call;
  call.life = {WorkerId(3), Incarnation(4)};
  call.bytes_pushed = 5;
  call.bytes_pulled = 6;
  call.activity = "pulls";
  call.standstill = {1, absl::Seconds(2)};
  call.map_version = 7;
  return {BytesOf(call)};
}
Seeds HeartbeatReplySeeds() {
  return {BytesOf(
      messages::HeartbeatAnswer{ViewId(3), "waits", messages::ServerAddresses{4, {"a:1", "b:2"}}})};
}
Seeds GrantSeeds() {
  messages::Grant grant;
  grant.round = Round(5);
  grant.view = ViewId(6);
  grant.first_sample = 70;
  grant.first_position = 71;
  grant.round_first_sample = 69;
  grant.num_samples = 8;
  grant.local_steps = 2;
  grant.learning_rates = {0.5, 0.25};
  grant.min_round = Round(4);
  grant.first_heldout_sample = 9;
  grant.num_heldout_samples = 2;
  grant.evaluation_set_size = 11;
  grant.reason = "why";
  grant.total_rounds = 12;
  Seeds seeds;
  for (const messages::Grant::Kind kind :
       {messages::Grant::Kind::kTrain, messages::Grant::Kind::kEvaluate,
        messages::Grant::Kind::kWait, messages::Grant::Kind::kDone}) {
    grant.kind = kind;
    seeds.push_back(BytesOf(grant));
  }
  return seeds;
}
Seeds RoundReportSeeds() {
  messages::RoundReport report;
  report.round = Round(5);
  report.loss_sum = 1.25;
  report.num_predictions = 6;
  report.num_samples = 7;
  report.compute = absl::Milliseconds(125);
  report.communication = absl::Milliseconds(250);
  report.wait = absl::Milliseconds(500);
  report.heldout_loss_sum = 2.5;
  report.heldout_correct = 8;
  report.heldout_predictions = 9;
  report.base_version = Version(10);
  return {BytesOf(report)};
}

shards::AssignCommand SomeAssignment() {
  shards::AssignCommand assign;
  assign.server_incarnation = 9;
  assign.job = SmallJob();
  assign.map = SmallMap(assign.job);
  assign.source = shards::CheckpointSource{"/checkpoints/round-00000003"};
  assign.folder = {"/checkpoints", 77};
  return assign;
}
sync::RoundPlan SomePlan() {
  return {Round(5),
          ViewId(6),
          {{WorkerId(1), Incarnation(2), 3}, {WorkerId(4), Incarnation(5), 6}},
          0.125};
}
Seeds ShardCommandSeeds() {
  const std::vector<sync::RosterMember> members = SomePlan().roster;
  Seeds seeds;
  for (const shards::ShardCommand& command : std::vector<shards::ShardCommand>{
           SomeAssignment(), shards::OpenRoundCommand{SomePlan()},
           shards::CloseRoundCommand{Round(3), members}, shards::MembersCommand{ViewId(2), members},
           shards::DropCommand{WorkerId(1), Incarnation(2), "lease expired"},
           shards::SaveCommand{Round(3), "/checkpoints/round-00000003"},
           shards::PublishedCommand{"/checkpoints/.tmp", "/checkpoints/round-00000003", Round(3)},
           shards::NormTotalCommand{Round(3), 2.5},
           shards::AskConnectionsCommand{{WorkerId(1), Incarnation(2)}},
           shards::StopCommand{"diverged"}}) {
    seeds.push_back(BytesOf(command));
  }
  return seeds;
}
Seeds RoundPlanSeeds() { return {BytesOf(SomePlan())}; }
Seeds ShardReportSeeds() {
  Seeds seeds;
  const messages::WorkerLife life = {WorkerId(1), Incarnation(2)};
  for (const shards::ShardEvent& event : std::vector<shards::ShardEvent>{
           shards::ShardLoaded{4, absl::NotFoundError("tensor x")},
           shards::ShardSaved{4, "run/round-1.tmp", "{}"},
           shards::ShardSquareSums{4, Round(3), {1.0, 2.0}},
           shards::ShardDiverged{4, Round(3), "bucket 3"},
           shards::ShardFailing{4, absl::ResourceExhaustedError("memory")},
           shards::ShardConnections{life, true}, shards::ShardAlarm{"the disk is full"},
           shards::ShardExiting{},
           sync::WorkerFault{life.worker, life.incarnation, Round(3),
                             sync::WorkerFault::Kind::kNotPushed, "bucket 3 is missing"}}) {
    v1::ShardReport report;
    report.set_shard(1);
    rpc::SetEvent(event, &report);
    seeds.push_back(report.SerializeAsString());
  }
  return seeds;
}
Seeds StatsSeeds() {
  shard::ShardStats stats;
  stats.version = Version(3);
  stats.weight_bytes = 4;
  stats.contributions_counted = 5;
  stats.staleness_histogram = {6, 7};
  stats.journal_bytes = 8;
  stats.journal_end = 9;
  stats.journal_trouble = "the disk is full";
  stats.journal_replica = "b:1 has record 8";
  stats.waiting_for = "worker 3";
  stats.push_space.unfinished = {{{WorkerId(1), Incarnation(2)}, Round(3), 4, 50, 100}};
  stats.push_space.held = {{WorkerId(2), Incarnation(3)}};
  return {BytesOf(stats)};
}
Seeds AssignmentSeeds() { return {rpc::FormatAssignment(SomeAssignment())}; }

const replica::MirroredPath kPath = {replica::MirroredFolder::kCheckpoints,
                                     "round-00000003/MANIFEST.json"};
Seeds FileEntrySeeds() { return {BytesOf(replica::FileEntry{kPath, false, 12, 34})}; }
Seeds TermRequestSeeds() {
  replica::TermRequest request;
  request.term = 5;
  request.connection = 6;
  request.previous = {3, 4};
  request.num_shards = 2;
  request.checkpoint_dir = "/checkpoints";
  request.server = "a:1";
  return {BytesOf(request)};
}
Seeds MirrorRequestSeeds() {
  Seeds seeds;
  for (const replica::FileChange& change : std::vector<replica::FileChange>{
           replica::CreateFileChange{1, kPath, true}, replica::AppendChange{1, "bytes"},
           replica::SyncFileChange{1}, replica::CloseFileChange{1},
           replica::CreateDirectoriesChange{kPath}, replica::RenameChange{kPath, kPath},
           replica::RemoveChange{kPath}, replica::SyncDirectoryChange{kPath},
           replica::CopyIsWholeChange{}}) {
    seeds.push_back(BytesOf(change));
  }
  return seeds;
}
Seeds StatusSeeds() {
  v1::ErrorDetails hints;
  hints.set_coordinator("a:1");
  hints.set_retry_after_ms(5000);
  hints.set_times_renewed(3);
  v1::RpcStatus details;
  details.set_code(9);
  details.set_message("not here");
  details.add_details()->PackFrom(hints);
  return {absl::StrCat("\x09", Piece("not here"), details.SerializeAsString()),
          absl::StrCat("\x0d", Piece("broken"))};
}

}  // namespace

absl::Span<const Case> Cases() {
  static constexpr Case kCases[] = {
      {"model", ReadMessage<v1::ModelSpec>, ModelSeeds},
      {"layout", ReadMessage<v1::Layout>, LayoutSeeds},
      {"job", ReadMessage<v1::JobSpec>, JobSeeds},
      {"loss", ReadMessage<v1::JobLoss>, LossSeeds},
      {"register_request", ReadMessage<v1::RegisterRequest>, RegisterRequestSeeds},
      {"register_reply", ReadMessage<v1::RegisterReply>, RegisterReplySeeds},
      {"dataset", ReadMessage<v1::DatasetInfo>, DatasetSeeds},
      {"heartbeat_request", ReadMessage<v1::HeartbeatRequest>, HeartbeatRequestSeeds},
      {"heartbeat_reply", ReadMessage<v1::HeartbeatReply>, HeartbeatReplySeeds},
      {"grant", ReadMessage<v1::Grant>, GrantSeeds},
      {"round_report", ReadMessage<v1::RoundReport>, RoundReportSeeds},
      {"shard_command", ReadMessage<v1::ShardCommand>, ShardCommandSeeds},
      {"round_plan", ReadMessage<v1::RoundPlan>, RoundPlanSeeds},
      {"shard_report", ReadReport, ShardReportSeeds},
      {"stats", ReadMessage<v1::ShardReport::Stats>, StatsSeeds},
      {"assignment", ReadAssignment, AssignmentSeeds},
      {"file_entry", ReadMessage<v1::FileEntry>, FileEntrySeeds},
      {"term_request", ReadMessage<v1::BeginTermRequest>, TermRequestSeeds},
      {"mirror_request", ReadMessage<v1::MirrorRequest>, MirrorRequestSeeds},
      {"status", ReadStatus, StatusSeeds},
      {"tensor_count", CountInRegistration, RegisterRequestSeeds},
  };
  return kCases;
}

}  // namespace lodestar::fuzz
