#include "server/rpc/cluster_convert.h"

#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/bucket_plan.h"
#include "common/status_macros.h"
#include "common/version.h"
#include "proto/convert.h"

namespace lodestar {
namespace {

constexpr size_t kMaxTextBytes = 256;

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
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, "=", value, " must be a finite number of at least 0"));
}

}  // namespace

absl::StatusOr<RegisterCall> FromProto(const v1::RegisterRequest& request,
                                       const std::string& peer) {
  if (request.wire_version() != kWireVersion) {
    return absl::InvalidArgumentError(absl::StrCat(
        "wire_version=", request.wire_version(), " of worker \"", absl::CHexEscape(request.name()),
        "\" (software ", absl::CHexEscape(request.software_version()), "); this server (software ",
        SoftwareVersion(), ") speaks ", kWireVersion, ": use the same release on both sides"));
  }
  RETURN_IF_ERROR(CheckText("name", request.name()));
  RETURN_IF_ERROR(CheckText("device", request.device()));
  RegisterCall call;
  call.name = request.name();
  call.instance_id = request.instance_id();
  call.device = request.device();
  call.peer = peer;
  for (const int wire : request.encodings()) {
    // Those of newer versions are no use to this job.
    const absl::StatusOr<Encoding> known = FromProto(static_cast<v1::Encoding>(wire));
    if (known.ok() && *known != Encoding::kFp32) call.encodings.push_back(*known);
  }
  if (request.has_layout()) {
    ASSIGN_OR_RETURN(call.layout, FromProto(request.layout()));
  }
  return call;
}

v1::RegisterReply ToProto(const RegisterAnswer& answer, const JobSpec& job) {
  v1::RegisterReply reply;
  reply.set_worker_id(answer.worker.value());
  reply.set_incarnation(answer.incarnation.value());
  reply.set_server_incarnation(answer.server_incarnation);
  reply.set_lease_ms(absl::ToInt64Milliseconds(answer.lease));
  reply.set_heartbeat_ms(absl::ToInt64Milliseconds(answer.heartbeat));
  *reply.mutable_job() = ToProto(job);
  reply.set_needs_initial_weights(answer.needs_initial_weights);
  if (answer.map == nullptr) return reply;
  *reply.mutable_layout() = ToProto(answer.map->layout);
  for (const ShardAddress& shard : answer.map->shards) {
    v1::ServerAddress* server = reply.add_servers();
    server->set_shard(shard.shard);
    server->set_address(shard.address);
    server->set_begin(shard.range.begin);
    server->set_end(shard.range.end);
  }
  for (const Bucket& bucket : answer.map->buckets) {
    v1::BucketSpec* spec = reply.add_buckets();
    spec->set_shard(bucket.shard);
    spec->set_block(bucket.block);
    spec->set_begin(bucket.range.begin);
    spec->set_end(bucket.range.end);
  }
  return reply;
}

absl::StatusOr<DatasetClaim> FromProto(const v1::DatasetInfo& dataset) {
  RETURN_IF_ERROR(CheckText("dataset.fingerprint", dataset.fingerprint()));
  RETURN_IF_ERROR(CheckCount("dataset.num_train_samples", dataset.num_train_samples()));
  RETURN_IF_ERROR(CheckCount("dataset.num_heldout_samples", dataset.num_heldout_samples()));
  RETURN_IF_ERROR(CheckCount("dataset.tokens_per_sample", dataset.tokens_per_sample()));
  DatasetClaim claim;
  claim.fingerprint = dataset.fingerprint();
  claim.num_train_samples = dataset.num_train_samples();
  claim.num_heldout_samples = dataset.num_heldout_samples();
  if (dataset.tokens_per_sample() > 0) claim.tokens_per_sample = dataset.tokens_per_sample();
  claim.own_partition = dataset.own_partition();
  return claim;
}

absl::StatusOr<HeartbeatCall> FromProto(const v1::HeartbeatRequest& request) {
  RETURN_IF_ERROR(CheckText("activity", request.activity()));
  HeartbeatCall call;
  call.life = {WorkerId(request.worker_id()), Incarnation(request.incarnation())};
  call.bytes_pushed = request.bytes_pushed();
  call.bytes_pulled = request.bytes_pulled();
  call.activity = request.activity();
  if (request.has_standstill()) {
    const v1::Standstill& standstill = request.standstill();
    RETURN_IF_ERROR(CheckCount("standstill.shard", standstill.shard()));
    RETURN_IF_ERROR(CheckCount("standstill.age_ms", standstill.age_ms()));
    call.standstill = {standstill.shard(), absl::Milliseconds(standstill.age_ms())};
  }
  return call;
}

absl::StatusOr<GrantReport> FromProto(const v1::RoundReport& report) {
  RETURN_IF_ERROR(CheckCount("report.round", report.round()));
  RETURN_IF_ERROR(CheckCount("report.num_predictions", report.num_predictions()));
  RETURN_IF_ERROR(CheckCount("report.num_samples", report.num_samples()));
  RETURN_IF_ERROR(CheckCount("report.heldout_correct", report.heldout_correct()));
  RETURN_IF_ERROR(CheckCount("report.heldout_predictions", report.heldout_predictions()));
  RETURN_IF_ERROR(CheckSeconds("report.compute_seconds", report.compute_seconds()));
  RETURN_IF_ERROR(CheckSeconds("report.communication_seconds", report.communication_seconds()));
  RETURN_IF_ERROR(CheckSeconds("report.wait_seconds", report.wait_seconds()));
  GrantReport result;
  result.round = Round(report.round());
  result.loss_sum = report.loss_sum();  // may be NaN: a diverged worker says so
  result.num_predictions = report.num_predictions();
  result.num_samples = report.num_samples();
  result.compute = absl::Seconds(report.compute_seconds());
  result.communication = absl::Seconds(report.communication_seconds());
  result.wait = absl::Seconds(report.wait_seconds());
  result.heldout_loss_sum = report.heldout_loss_sum();
  result.heldout_correct = report.heldout_correct();
  result.heldout_predictions = report.heldout_predictions();
  result.base_version = Version(report.base_version());
  return result;
}

v1::Grant ToProto(const Grant& grant) {
  v1::Grant result;
  switch (grant.kind) {
    case Grant::Kind::kTrain:
      result.set_kind(v1::Grant::KIND_TRAIN);
      break;
    case Grant::Kind::kEvaluate:
      result.set_kind(v1::Grant::KIND_EVALUATE);
      break;
    case Grant::Kind::kDone:
      result.set_kind(v1::Grant::KIND_DONE);
      break;
  }
  result.set_round(grant.round.value());
  result.set_view_id(grant.view.value());
  result.set_first_sample(grant.first_sample);
  result.set_first_position(grant.first_position);
  result.set_num_samples(grant.num_samples);
  result.set_local_steps(grant.local_steps);
  for (const double rate : grant.learning_rates) result.add_learning_rates(rate);
  result.set_min_round(grant.min_round.value());
  result.set_first_heldout_sample(grant.first_heldout_sample);
  result.set_num_heldout_samples(grant.num_heldout_samples);
  result.set_evaluation_set_size(grant.evaluation_set_size);
  result.set_reason(grant.reason);
  result.set_has_failed(grant.has_failed);
  result.set_total_rounds(grant.total_rounds);
  *result.mutable_loss() = ToProto(grant.loss);
  return result;
}

v1::Grant WaitGrant(const std::string& reason) {
  v1::Grant grant;
  grant.set_kind(v1::Grant::KIND_WAIT);
  grant.set_reason(reason);
  return grant;
}

}  // namespace lodestar
