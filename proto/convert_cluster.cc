// SPDX-License-Identifier: Apache-2.0

#include "proto/convert_cluster.h"

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/messages/program_metrics.h"
#include "common/net/host_port.h"
#include "common/params/shard_plan.h"
#include "common/process/version.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"
#include "proto/convert.h"

namespace lodestar::wire {
namespace {

constexpr size_t kMaxTextBytes = 256;
constexpr size_t kMaxLifeSecretBytes = 128;
// Maximum length of the reason why a worker waits, or why the job is over.
constexpr size_t kMaxReasonBytes = 2048;
// Maximum round. No job reaches it, and sums of rounds do not overflow.
constexpr int64_t kMaxRound = int64_t{1} << 60;
// Maximum number of samples of all workers, or of one data set.
constexpr int64_t kMaxSamples = int64_t{1} << 60;
// Maximum length of a round in seconds, some thirty years. absl::Duration can hold this many
// seconds.
constexpr double kMaxSeconds = 1e9;
constexpr int64_t kMaxAgeMs = 1'000'000'000'000;

// Checks the secret's characters. It is sent as metadata, and gRPC would end the process if a
// character is not allowed there.
absl::Status CheckLifeSecret(absl::string_view secret) {
  if (secret.size() <= kMaxLifeSecretBytes &&
      std::all_of(secret.begin(), secret.end(), [](char c) { return absl::ascii_isxdigit(c); })) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("registration gives a life_secret of ",
                                                 secret.size(), " bytes; wanted are at most ",
                                                 kMaxLifeSecretBytes, " hexadecimal digits"));
}

absl::Status CheckText(absl::string_view field, const std::string& text) {
  if (text.size() <= kMaxTextBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " has ", text.size(), " bytes; allowed are ", kMaxTextBytes));
}

absl::Status CheckCount(absl::string_view field, int64_t value) {
  if (value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, "=", value, " must not be negative"));
}

absl::Status CheckSeconds(absl::string_view field, double value) {
  if (value >= 0.0 && value <= kMaxSeconds) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, "=", value, " is out of range; allowed are 0 to ", kMaxSeconds));
}

absl::Status CheckRate(absl::string_view field, double value) {
  if (value >= 0.0 && std::isfinite(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, "=", value, " is out of range; allowed are finite values from 0 on"));
}

absl::Status CheckRange(absl::string_view field, int64_t value, int64_t lowest, int64_t highest) {
  if (lowest <= value && value <= highest) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, "=", value, " is out of range; allowed are ", lowest, " to ", highest));
}

// Checks that the buckets in the reply equal `plan`, which the worker has computed and will use.
absl::Status CheckBuckets(const v1::RegisterReply& reply, const std::vector<params::Bucket>& plan) {
  if (reply.buckets_size() != static_cast<int>(plan.size())) {
    return absl::InvalidArgumentError(absl::StrCat("the server plans ", reply.buckets_size(),
                                                   " buckets, but this worker plans ", plan.size(),
                                                   "; use the same version on both sides"));
  }
  for (int i = 0; i < reply.buckets_size(); ++i) {
    const v1::BucketSpec& theirs = reply.buckets(i);
    const params::Bucket& ours = plan[i];
    if (theirs.shard() != ours.shard || theirs.block() != ours.block ||
        theirs.begin() != ours.range.begin || theirs.end() != ours.range.end) {
      return absl::InvalidArgumentError(
          absl::StrCat("bucket ", i, " has elements ", theirs.begin(), "..", theirs.end(),
                       " for the server, but ", ours.range.begin, "..", ours.range.end,
                       " for this worker; use the same version on both sides"));
    }
  }
  return absl::OkStatus();
}

messages::Grant::Kind KindFromProto(v1::Grant::Kind kind) {
  switch (kind) {
    case v1::Grant::KIND_TRAIN:
      return messages::Grant::Kind::kTrain;
    case v1::Grant::KIND_EVALUATE:
      return messages::Grant::Kind::kEvaluate;
    case v1::Grant::KIND_DONE:
      return messages::Grant::Kind::kDone;
    default:
      return messages::Grant::Kind::kWait;
  }
}

absl::Status CheckNumbers(const messages::Grant& grant) {
  RETURN_IF_ERROR(CheckRange("grant.round", grant.round.value(), 0, kMaxRound));
  RETURN_IF_ERROR(CheckRange("grant.min_round", grant.min_round.value(), 0, kMaxRound));
  RETURN_IF_ERROR(CheckRange("grant.total_rounds", grant.total_rounds, 0, kMaxRound));
  RETURN_IF_ERROR(CheckRange("grant.first_sample", grant.first_sample, 0, kMaxSamples));
  RETURN_IF_ERROR(
      CheckRange("grant.round_first_sample", grant.round_first_sample.value_or(0), 0, kMaxSamples));
  RETURN_IF_ERROR(CheckRange("grant.first_position", grant.first_position, 0, kMaxSamples));
  RETURN_IF_ERROR(CheckRange("grant.num_samples", grant.num_samples, 0,
                             job::kMaxStepSamples * job::kMaxLocalSteps));
  RETURN_IF_ERROR(CheckRange("grant.local_steps", grant.local_steps, 0, job::kMaxLocalSteps));
  RETURN_IF_ERROR(CheckRange("grant.round_samples", grant.round_samples, 0, kMaxSamples));
  RETURN_IF_ERROR(
      CheckRange("grant.evaluation_set_size", grant.evaluation_set_size, 0, kMaxSamples));
  RETURN_IF_ERROR(CheckRange("grant.first_heldout_sample", grant.first_heldout_sample, 0,
                             grant.evaluation_set_size));
  RETURN_IF_ERROR(CheckRange("grant.num_heldout_samples", grant.num_heldout_samples, 0,
                             grant.evaluation_set_size - grant.first_heldout_sample));
  for (const double rate : grant.learning_rates) {
    if (rate >= 0.0 && rate <= job::kMaxLearningRate) continue;
    return absl::InvalidArgumentError(absl::StrCat("grant.learning_rates has ", rate,
                                                   "; allowed are 0 to ", job::kMaxLearningRate));
  }
  return absl::OkStatus();
}

v1::Grant::Kind KindToProto(messages::Grant::Kind kind) {
  switch (kind) {
    case messages::Grant::Kind::kTrain:
      return v1::Grant::KIND_TRAIN;
    case messages::Grant::Kind::kEvaluate:
      return v1::Grant::KIND_EVALUATE;
    case messages::Grant::Kind::kWait:
      return v1::Grant::KIND_WAIT;
    case messages::Grant::Kind::kDone:
      return v1::Grant::KIND_DONE;
  }
  return v1::Grant::KIND_UNSPECIFIED;
}

v1::LiveWorkers ToProto(const messages::LiveWorkers& workers) {
  v1::LiveWorkers proto;
  proto.set_count(workers.count);
  proto.set_lowest_index(workers.lowest_index);
  return proto;
}

// Returns the field live_workers of `reply`, or nullopt if it is absent. Errors: InvalidArgument.
template <typename Reply>
absl::StatusOr<std::optional<messages::LiveWorkers>> LiveWorkersFrom(const Reply& reply) {
  if (!reply.has_live_workers()) return std::nullopt;
  const v1::LiveWorkers& workers = reply.live_workers();
  RETURN_IF_ERROR(CheckCount("live_workers.count", workers.count()));
  return messages::LiveWorkers{.count = workers.count(), .lowest_index = workers.lowest_index()};
}

}  // namespace

v1::ServerAddress ToProto(const messages::ServerAddress& server) {
  v1::ServerAddress proto;
  proto.set_shard(server.shard);
  proto.set_address(server.address);
  proto.set_begin(server.range.begin);
  proto.set_end(server.range.end);
  return proto;
}

absl::StatusOr<std::vector<messages::ServerAddress>> FromProto(
    const google::protobuf::RepeatedPtrField<v1::ServerAddress>& listed) {
  if (listed.size() > params::kMaxServers) {
    return absl::InvalidArgumentError(absl::StrCat("the coordinator lists ", listed.size(),
                                                   " servers; at most ", params::kMaxServers,
                                                   " are allowed"));
  }
  std::vector<messages::ServerAddress> servers;
  servers.reserve(listed.size());
  for (const v1::ServerAddress& server : listed) {
    if (server.shard() != static_cast<int>(servers.size())) {
      return absl::InvalidArgumentError(absl::StrCat("the coordinator lists the server of shard ",
                                                     server.shard(), " at place ", servers.size(),
                                                     "; use the same version on both sides"));
    }
    RETURN_IF_ERROR(net::CheckPeerAddress(absl::StrCat("the server of shard ", server.shard()),
                                          server.address()));
    servers.push_back({server.shard(), server.address(), {server.begin(), server.end()}});
  }
  return servers;
}

v1::RegisterRequest ToProto(const messages::RegisterCall& call) {
  v1::RegisterRequest request;
  request.set_wire_version(process::kWireVersion);
  request.set_software_version(process::SoftwareVersion());
  request.set_name(call.name);
  request.set_instance_id(call.instance_id);
  request.set_device(call.device);
  for (const params::Encoding::Kind encoding : call.encodings)
    request.add_encodings(ToProto(encoding));
  if (call.layout.has_value()) *request.mutable_layout() = ToProto(*call.layout);
  request.set_adopts_order(call.adopts_order);
  request.set_frozen_hash(call.frozen_hash);
  if (!call.proposed.is_empty()) *request.mutable_proposed() = ToProto(call.proposed);
  if (const auto& age = call.process.age; age.has_value()) {
    request.set_age_ms(absl::ToInt64Milliseconds(*age));
  }
  if (const auto& acknowledged = call.process.acknowledged; acknowledged.has_value()) {
    v1::AcknowledgedReport* const report = request.mutable_acknowledged();
    report->set_server_incarnation(acknowledged->server_incarnation);
    report->set_incarnation(acknowledged->life.value());
    report->set_round(acknowledged->round.value());
  }
  return request;
}

absl::StatusOr<messages::RegisterCall> FromProto(const v1::RegisterRequest& request) {
  if (request.wire_version() != process::kWireVersion) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker '", PeerText(request.name(), kMaxTextBytes), "' (release ",
        PeerText(request.software_version(), kMaxTextBytes), ") has wire_version=",
        request.wire_version(), ", but this server (release ", process::SoftwareVersion(), ") has ",
        process::kWireVersion, "; use the same release on both sides"));
  }
  RETURN_IF_ERROR(CheckText("name", request.name()));
  RETURN_IF_ERROR(CheckText("device", request.device()));
  RETURN_IF_ERROR(CheckText("frozen_hash", request.frozen_hash()));
  messages::RegisterCall call;
  call.name = request.name();
  call.instance_id = request.instance_id();
  call.device = PeerText(request.device(), kMaxTextBytes);
  for (const int wire : request.encodings()) {
    // Encodings of newer versions are ignored, because this job cannot use them.
    const absl::StatusOr<params::Encoding::Kind> known = FromProto(static_cast<v1::Encoding>(wire));
    if (known.ok() && *known != params::Encoding::Kind::kFp32) call.encodings.push_back(*known);
  }
  if (request.has_layout()) {
    ASSIGN_OR_RETURN(call.layout, FromProto(request.layout()));
  }
  call.adopts_order = request.adopts_order();
  call.frozen_hash = PeerText(request.frozen_hash(), kMaxTextBytes);
  ASSIGN_OR_RETURN(call.proposed, FromProto(request.proposed()));
  // The age is only shown, so a value that makes no sense is ignored.
  if (request.has_age_ms() && request.age_ms() >= 0 && request.age_ms() <= kMaxAgeMs) {
    call.process.age = absl::Milliseconds(request.age_ms());
  }
  if (request.has_acknowledged()) {
    const v1::AcknowledgedReport& report = request.acknowledged();
    RETURN_IF_ERROR(CheckCount("acknowledged.round", report.round()));
    call.process.acknowledged = {.server_incarnation = report.server_incarnation(),
                                 .life = Incarnation(report.incarnation()),
                                 .round = Round(report.round())};
  }
  return call;
}

v1::RegisterReply ToProto(const messages::Registration& registration) {
  v1::RegisterReply reply;
  SetLife(registration.life, &reply);
  reply.set_server_incarnation(registration.server_incarnation);
  reply.set_lease_ms(absl::ToInt64Milliseconds(registration.lease));
  reply.set_heartbeat_ms(absl::ToInt64Milliseconds(registration.heartbeat_interval));
  *reply.mutable_job() = ToProto(registration.job);
  reply.set_needs_initial_weights(registration.needs_initial_weights);
  reply.set_life_secret(registration.life_secret);
  reply.set_rounds_completed(registration.rounds_completed);
  reply.set_next_round(registration.next_round.value());
  if (registration.index.has_value()) reply.set_index(*registration.index);
  if (registration.live_workers.has_value()) {
    *reply.mutable_live_workers() = ToProto(*registration.live_workers);
  }
  if (registration.map == nullptr) return reply;
  reply.set_map_version(registration.map->version);
  *reply.mutable_layout() = ToProto(registration.layout());
  for (const messages::ServerAddress& server : registration.servers())
    *reply.add_servers() = ToProto(server);
  for (const params::Bucket& bucket : registration.buckets()) {
    v1::BucketSpec* spec = reply.add_buckets();
    spec->set_shard(bucket.shard);
    spec->set_block(bucket.block);
    spec->set_begin(bucket.range.begin);
    spec->set_end(bucket.range.end);
  }
  return reply;
}

absl::StatusOr<messages::Registration> FromProto(const v1::RegisterReply& reply) {
  messages::Registration registration;
  registration.life = LifeFromProto(reply);
  registration.server_incarnation = reply.server_incarnation();
  registration.lease = absl::Milliseconds(reply.lease_ms());
  registration.heartbeat_interval = absl::Milliseconds(reply.heartbeat_ms());
  if (registration.heartbeat_interval <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the server's reply gives a heartbeat interval of ", reply.heartbeat_ms(),
                     " ms, but it must be more than 0; use the same version on both sides"));
  }
  ASSIGN_OR_RETURN(registration.job, FromProto(reply.job()));
  registration.needs_initial_weights = reply.needs_initial_weights();
  RETURN_IF_ERROR(CheckLifeSecret(reply.life_secret()));
  registration.life_secret = reply.life_secret();
  registration.rounds_completed = reply.rounds_completed();
  RETURN_IF_ERROR(CheckCount("next_round", reply.next_round()));
  registration.next_round = Round(reply.next_round());
  if (reply.has_index()) registration.index = reply.index();
  ASSIGN_OR_RETURN(registration.live_workers, LiveWorkersFrom(reply));
  auto map = std::make_shared<messages::ClusterMap>();
  map->version = reply.map_version();
  ASSIGN_OR_RETURN(map->layout, FromProto(reply.layout()));
  ASSIGN_OR_RETURN(map->servers, FromProto(reply.servers()));
  std::vector<params::ElementRange> shards;
  for (const messages::ServerAddress& server : map->servers) shards.push_back(server.range);
  ASSIGN_OR_RETURN(map->buckets,
                   params::PlanBuckets(map->layout, shards, registration.job.bucket_bytes));
  RETURN_IF_ERROR(CheckBuckets(reply, map->buckets));
  registration.map = std::move(map);
  return registration;
}

v1::DatasetInfo ToProto(const messages::DatasetInfo& dataset) {
  v1::DatasetInfo proto;
  proto.set_fingerprint(dataset.fingerprint);
  proto.set_num_train_samples(dataset.num_train_samples);
  proto.set_num_heldout_samples(dataset.num_heldout_samples);
  proto.set_tokens_per_sample(dataset.tokens_per_sample);
  proto.set_own_partition(dataset.own_partition);
  return proto;
}

absl::StatusOr<messages::DatasetInfo> FromProto(const v1::DatasetInfo& dataset) {
  RETURN_IF_ERROR(CheckText("dataset.fingerprint", dataset.fingerprint()));
  RETURN_IF_ERROR(CheckCount("dataset.num_train_samples", dataset.num_train_samples()));
  RETURN_IF_ERROR(CheckCount("dataset.num_heldout_samples", dataset.num_heldout_samples()));
  RETURN_IF_ERROR(CheckCount("dataset.tokens_per_sample", dataset.tokens_per_sample()));
  messages::DatasetInfo result;
  result.fingerprint = PeerText(dataset.fingerprint(), kMaxTextBytes);
  result.num_train_samples = dataset.num_train_samples();
  result.num_heldout_samples = dataset.num_heldout_samples();
  if (dataset.tokens_per_sample() > 0) result.tokens_per_sample = dataset.tokens_per_sample();
  result.own_partition = dataset.own_partition();
  return result;
}

v1::HeartbeatRequest ToProto(const messages::HeartbeatCall& call) {
  v1::HeartbeatRequest request;
  SetLife(call.life, &request);
  request.set_bytes_pushed(call.bytes_pushed);
  request.set_bytes_pulled(call.bytes_pulled);
  request.set_activity(call.activity);
  if (call.standstill.has_value()) {
    request.mutable_standstill()->set_shard(call.standstill->shard);
    request.mutable_standstill()->set_age_ms(absl::ToInt64Milliseconds(call.standstill->age));
  }
  if (call.map_version.has_value()) request.set_map_version(*call.map_version);
  if (call.path != messages::PathFacts()) {
    request.mutable_path()->set_up_bytes_per_second(call.path.up_bytes_per_second);
    request.mutable_path()->set_down_bytes_per_second(call.path.down_bytes_per_second);
    request.mutable_path()->set_round_trip_seconds(absl::ToDoubleSeconds(call.path.round_trip));
  }
  if (call.acknowledged.has_value()) request.set_acknowledged_round(call.acknowledged->value());
  return request;
}

absl::StatusOr<messages::HeartbeatCall> FromProto(const v1::HeartbeatRequest& request) {
  RETURN_IF_ERROR(CheckText("activity", request.activity()));
  messages::HeartbeatCall call;
  call.life = LifeFromProto(request);
  call.bytes_pushed = request.bytes_pushed();
  call.bytes_pulled = request.bytes_pulled();
  call.activity = PeerText(request.activity(), kMaxTextBytes);
  if (request.has_standstill()) {
    const v1::Standstill& standstill = request.standstill();
    RETURN_IF_ERROR(CheckCount("standstill.shard", standstill.shard()));
    RETURN_IF_ERROR(CheckCount("standstill.age_ms", standstill.age_ms()));
    call.standstill = {standstill.shard(), absl::Milliseconds(standstill.age_ms())};
  }
  if (request.has_map_version()) call.map_version = request.map_version();
  const v1::PathFacts& path = request.path();
  RETURN_IF_ERROR(CheckRate("path.up_bytes_per_second", path.up_bytes_per_second()));
  RETURN_IF_ERROR(CheckRate("path.down_bytes_per_second", path.down_bytes_per_second()));
  RETURN_IF_ERROR(CheckSeconds("path.round_trip_seconds", path.round_trip_seconds()));
  call.path = {.up_bytes_per_second = path.up_bytes_per_second(),
               .down_bytes_per_second = path.down_bytes_per_second(),
               .round_trip = absl::Seconds(path.round_trip_seconds())};
  if (request.has_acknowledged_round()) {
    RETURN_IF_ERROR(CheckCount("acknowledged_round", request.acknowledged_round()));
    call.acknowledged = Round(request.acknowledged_round());
  }
  return call;
}

v1::HeartbeatReply ToProto(const messages::HeartbeatAnswer& answer) {
  v1::HeartbeatReply reply;
  reply.set_view_id(answer.view.value());
  reply.set_waiting_for(answer.waiting_for);
  if (answer.live_workers.has_value()) {
    *reply.mutable_live_workers() = ToProto(*answer.live_workers);
  }
  if (!answer.servers.has_value()) return reply;
  reply.set_map_version(answer.servers->map_version);
  for (const std::string& address : answer.servers->addresses) {
    v1::ServerAddress* server = reply.add_servers();
    server->set_shard(reply.servers_size() - 1);
    server->set_address(address);
  }
  return reply;
}

absl::StatusOr<messages::HeartbeatAnswer> FromProto(const v1::HeartbeatReply& reply) {
  messages::HeartbeatAnswer answer = {ViewId(reply.view_id()),
                                      PeerText(reply.waiting_for(), kMaxReasonBytes), std::nullopt};
  ASSIGN_OR_RETURN(answer.live_workers, LiveWorkersFrom(reply));
  if (reply.servers().empty()) return answer;
  ASSIGN_OR_RETURN(const std::vector<messages::ServerAddress> servers, FromProto(reply.servers()));
  answer.servers = messages::ServerAddresses{reply.map_version(), {}};
  for (const messages::ServerAddress& server : servers) {
    answer.servers->addresses.push_back(server.address);
  }
  return answer;
}

v1::Grant ToProto(const messages::Grant& grant) {
  v1::Grant result;
  result.set_kind(KindToProto(grant.kind));
  result.set_reason(grant.reason);
  if (grant.kind == messages::Grant::Kind::kWait) return result;
  result.set_round(grant.round.value());
  result.set_view_id(grant.view.value());
  result.set_first_sample(grant.first_sample);
  if (grant.round_first_sample.has_value()) {
    result.set_round_first_sample(*grant.round_first_sample);
  }
  result.set_first_position(grant.first_position);
  result.set_num_samples(grant.num_samples);
  result.set_local_steps(grant.local_steps);
  result.set_round_samples(grant.round_samples);
  for (const double rate : grant.learning_rates) result.add_learning_rates(rate);
  result.set_min_round(grant.min_round.value());
  result.set_first_heldout_sample(grant.first_heldout_sample);
  result.set_num_heldout_samples(grant.num_heldout_samples);
  result.set_evaluation_set_size(grant.evaluation_set_size);
  result.set_has_failed(grant.has_failed);
  result.set_total_rounds(grant.total_rounds);
  *result.mutable_loss() = ToProto(grant.loss);
  if (grant.live_workers.has_value()) {
    *result.mutable_live_workers() = ToProto(*grant.live_workers);
  }
  return result;
}

absl::StatusOr<messages::Grant> FromProto(const v1::Grant& grant) {
  messages::Grant result;
  result.kind = KindFromProto(grant.kind());
  result.round = Round(grant.round());
  result.view = ViewId(grant.view_id());
  result.first_sample = grant.first_sample();
  if (grant.has_round_first_sample()) result.round_first_sample = grant.round_first_sample();
  result.first_position =
      grant.has_first_position() ? grant.first_position() : grant.first_sample();
  result.num_samples = grant.num_samples();
  result.local_steps = grant.local_steps();
  result.round_samples = grant.round_samples();
  result.learning_rates.assign(grant.learning_rates().begin(), grant.learning_rates().end());
  result.min_round = Round(grant.min_round());
  result.first_heldout_sample = grant.first_heldout_sample();
  result.num_heldout_samples = grant.num_heldout_samples();
  result.evaluation_set_size = grant.evaluation_set_size();
  result.reason = PeerText(grant.reason(), kMaxReasonBytes);
  result.has_failed = grant.has_failed();
  result.total_rounds = grant.total_rounds();
  result.loss = FromProto(grant.loss());
  ASSIGN_OR_RETURN(result.live_workers, LiveWorkersFrom(grant));
  RETURN_IF_ERROR(CheckNumbers(result));
  const bool computes_nothing = result.num_samples == 0 && result.local_steps == 0 &&
                                result.learning_rates.empty() && result.first_sample >= 0 &&
                                result.first_position >= 0;
  if (result.kind == messages::Grant::Kind::kTrain && !computes_nothing &&
      (result.num_samples < 1 || result.first_sample < 0 || result.first_position < 0 ||
       result.local_steps < 1 || result.num_samples < result.local_steps ||
       static_cast<int>(result.learning_rates.size()) != result.local_steps)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "grant of round ", grant.round(), " has ", grant.num_samples(), " samples from ",
        grant.first_sample(), ", ", grant.local_steps(), " local steps and ",
        grant.learning_rates_size(),
        " learning rates, which do not fit each other; use the same version on both sides"));
  }
  return result;
}

v1::RoundReport ToProto(const messages::RoundReport& report) {
  v1::RoundReport proto;
  proto.set_round(report.round.value());
  proto.set_loss_sum(report.loss_sum);
  proto.set_num_predictions(report.num_predictions);
  proto.set_num_samples(report.num_samples);
  proto.set_compute_seconds(absl::ToDoubleSeconds(report.compute));
  proto.set_communication_seconds(absl::ToDoubleSeconds(report.communication));
  proto.set_wait_seconds(absl::ToDoubleSeconds(report.wait));
  proto.set_heldout_loss_sum(report.heldout_loss_sum);
  proto.set_heldout_correct(report.heldout_correct);
  proto.set_heldout_predictions(report.heldout_predictions);
  proto.set_base_version(report.base_version.value());
  proto.mutable_metrics()->insert(report.metrics.begin(), report.metrics.end());
  proto.set_lost_residual_rounds(report.lost_residual_rounds);
  proto.set_leaves_nothing_in_hand(report.leaves_nothing_in_hand);
  return proto;
}

absl::StatusOr<messages::RoundReport> FromProto(const v1::RoundReport& report) {
  RETURN_IF_ERROR(CheckCount("report.round", report.round()));
  RETURN_IF_ERROR(CheckCount("report.num_predictions", report.num_predictions()));
  RETURN_IF_ERROR(CheckCount("report.num_samples", report.num_samples()));
  RETURN_IF_ERROR(CheckCount("report.heldout_correct", report.heldout_correct()));
  RETURN_IF_ERROR(CheckCount("report.heldout_predictions", report.heldout_predictions()));
  RETURN_IF_ERROR(CheckCount("report.lost_residual_rounds", report.lost_residual_rounds()));
  RETURN_IF_ERROR(CheckSeconds("report.compute_seconds", report.compute_seconds()));
  RETURN_IF_ERROR(CheckSeconds("report.communication_seconds", report.communication_seconds()));
  RETURN_IF_ERROR(CheckSeconds("report.wait_seconds", report.wait_seconds()));
  messages::RoundReport result;
  result.round = Round(report.round());
  result.loss_sum = report.loss_sum();  // may be NaN: a worker that has diverged reports NaN
  result.num_predictions = report.num_predictions();
  result.num_samples = report.num_samples();
  result.compute = absl::Seconds(report.compute_seconds());
  result.communication = absl::Seconds(report.communication_seconds());
  result.wait = absl::Seconds(report.wait_seconds());
  result.heldout_loss_sum = report.heldout_loss_sum();
  result.heldout_correct = report.heldout_correct();
  result.heldout_predictions = report.heldout_predictions();
  result.base_version = Version(report.base_version());
  result.lost_residual_rounds = report.lost_residual_rounds();
  result.leaves_nothing_in_hand = report.leaves_nothing_in_hand();
  RETURN_IF_ERROR(CheckRange("the number of report.metrics", report.metrics_size(), 0,
                             static_cast<int64_t>(messages::kMaxMetrics)));
  for (const auto& [name, value] : report.metrics()) {
    RETURN_IF_ERROR(messages::CheckMetricName(name));
    result.metrics[name] = value;
  }
  return result;
}

}  // namespace lodestar::wire
