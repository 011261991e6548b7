// Between the messages of proto/cluster_service.proto and the coordinator's native types. FromProto
// checks what the coordinator does not: sizes of texts, signs, finite numbers. Errors are
// InvalidArgument and name the field.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/job_spec.h"
#include "proto/cluster_service.pb.h"
#include "server/coordinator/messages.h"
#include "server/coordinator/shard_command.h"
#include "server/shard/shard_observer.h"
#include "server/sync/round_plan.h"

namespace lodestar {

// Workers.
absl::StatusOr<RegisterCall> FromProto(const v1::RegisterRequest& request, const std::string& peer);
v1::RegisterReply ToProto(const RegisterAnswer& answer, const JobSpec& job);
absl::StatusOr<DatasetClaim> FromProto(const v1::DatasetInfo& dataset);
absl::StatusOr<HeartbeatCall> FromProto(const v1::HeartbeatRequest& request);
absl::StatusOr<GrantReport> FromProto(const v1::RoundReport& report);
v1::Grant ToProto(const Grant& grant);
// KIND_WAIT.
v1::Grant WaitGrant(const std::string& reason);

// Shards of other servers.
v1::ShardCommand ToProto(const ShardCommand& command);
absl::StatusOr<ShardCommand> FromProto(const v1::ShardCommand& command);
v1::RoundPlan ToProto(const RoundPlan& plan);
absl::StatusOr<RoundPlan> FromProto(const v1::RoundPlan& plan);
v1::ShardReport::Fault ToProto(const WorkerFault& fault);
absl::StatusOr<WorkerFault> FromProto(const v1::ShardReport::Fault& fault);
v1::RosterMember ToProto(const RosterMember& member);
RosterMember FromProto(const v1::RosterMember& member);

// The wire form has less: staleness histogram, totals and one sentence.
v1::ShardReport::Stats ToProto(const ShardStats& stats, uint64_t bytes_received,
                               uint64_t bytes_sent);
ShardStats FromProto(const v1::ShardReport::Stats& stats);

}  // namespace lodestar
