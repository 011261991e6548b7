#include "worker/client/cluster_convert.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/convert.h"

namespace lodestar {
namespace {

absl::StatusOr<std::vector<ServerEndpoint>> ServersFromProto(const v1::RegisterReply& reply) {
  std::vector<ServerEndpoint> servers;
  servers.reserve(reply.servers_size());
  for (const v1::ServerAddress& server : reply.servers()) {
    if (server.shard() != static_cast<int>(servers.size())) {
      return absl::InvalidArgumentError(absl::StrCat("registration lists the server of shard ",
                                                     server.shard(), " at place ", servers.size(),
                                                     "; the coordinator's version may differ"));
    }
    servers.push_back({server.shard(), server.address(), {server.begin(), server.end()}});
  }
  return servers;
}

// The worker relies on its own plan, so it must be the server's.
absl::Status CheckBuckets(const v1::RegisterReply& reply, const std::vector<Bucket>& plan) {
  if (reply.buckets_size() != static_cast<int>(plan.size())) {
    return absl::InvalidArgumentError(absl::StrCat("the server plans ", reply.buckets_size(),
                                                   " buckets, this worker ", plan.size(),
                                                   "; use the same version on both sides"));
  }
  for (int i = 0; i < reply.buckets_size(); ++i) {
    const v1::BucketSpec& theirs = reply.buckets(i);
    const Bucket& ours = plan[i];
    if (theirs.shard() != ours.shard || theirs.block() != ours.block ||
        theirs.begin() != ours.range.begin || theirs.end() != ours.range.end) {
      return absl::InvalidArgumentError(
          absl::StrCat("bucket ", i, " is elements ", theirs.begin(), "..", theirs.end(),
                       " for the server and ", ours.range.begin, "..", ours.range.end,
                       " for this worker; use the same version on both sides"));
    }
  }
  return absl::OkStatus();
}

GrantKind KindFromProto(v1::Grant::Kind kind) {
  switch (kind) {
    case v1::Grant::KIND_TRAIN:
      return GrantKind::kTrain;
    case v1::Grant::KIND_EVALUATE:
      return GrantKind::kEvaluate;
    case v1::Grant::KIND_DONE:
      return GrantKind::kDone;
    default:
      return GrantKind::kWait;
  }
}

}  // namespace

absl::StatusOr<Registration> FromProto(const v1::RegisterReply& reply) {
  Registration registration;
  registration.identity = {WorkerId(reply.worker_id()), Incarnation(reply.incarnation())};
  registration.server_incarnation = reply.server_incarnation();
  registration.heartbeat_interval = absl::Milliseconds(reply.heartbeat_ms());
  if (registration.heartbeat_interval <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("registration gives a heartbeat interval of ", reply.heartbeat_ms(), " ms"));
  }
  ASSIGN_OR_RETURN(registration.job, FromProto(reply.job()));
  ASSIGN_OR_RETURN(registration.layout, FromProto(reply.layout()));
  ASSIGN_OR_RETURN(registration.servers, ServersFromProto(reply));
  std::vector<ElementRange> shards;
  for (const ServerEndpoint& server : registration.servers) shards.push_back(server.range);
  ASSIGN_OR_RETURN(registration.buckets,
                   PlanBuckets(registration.layout, shards, registration.job.bucket_bytes));
  RETURN_IF_ERROR(CheckBuckets(reply, registration.buckets));
  return registration;
}

absl::StatusOr<WorkGrant> FromProto(const v1::Grant& grant) {
  WorkGrant result;
  result.kind = KindFromProto(grant.kind());
  result.round = Round(grant.round());
  result.first_sample = grant.first_sample();
  result.first_position =
      grant.has_first_position() ? grant.first_position() : grant.first_sample();
  result.num_samples = grant.num_samples();
  result.local_steps = grant.local_steps();
  result.learning_rates.assign(grant.learning_rates().begin(), grant.learning_rates().end());
  result.min_round = Round(grant.min_round());
  result.first_heldout_sample = grant.first_heldout_sample();
  result.num_heldout_samples = grant.num_heldout_samples();
  result.evaluation_set_size = grant.evaluation_set_size();
  result.reason = grant.reason();
  result.has_failed = grant.has_failed();
  result.total_rounds = grant.total_rounds();
  result.loss = FromProto(grant.loss());
  if (result.kind == GrantKind::kTrain &&
      (result.num_samples < 1 || result.first_sample < 0 || result.first_position < 0 ||
       result.local_steps < 1 || result.num_samples < result.local_steps ||
       static_cast<int>(result.learning_rates.size()) != result.local_steps)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "grant of round ", grant.round(), " has ", grant.num_samples(), " samples from ",
        grant.first_sample(), ", ", grant.local_steps(), " local steps and ",
        grant.learning_rates_size(), " learning rates, which do not fit each other"));
  }
  return result;
}

v1::DatasetInfo ToProto(const DatasetFacts& dataset) {
  v1::DatasetInfo proto;
  proto.set_fingerprint(dataset.fingerprint);
  proto.set_num_train_samples(dataset.num_train_samples);
  proto.set_num_heldout_samples(dataset.num_heldout_samples);
  proto.set_tokens_per_sample(dataset.tokens_per_sample);
  proto.set_own_partition(dataset.own_partition);
  return proto;
}

v1::RoundReport ToProto(const RoundReport& report) {
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
  return proto;
}

}  // namespace lodestar
