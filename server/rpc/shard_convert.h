// Between what proto/cluster_service.proto has for the shards of other servers and the native types
// of coordinator and shard. Errors are InvalidArgument and name the field.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/cluster_service.pb.h"
#include "server/coordinator/shards/journal_state.h"
#include "server/coordinator/shards/shard_command.h"
#include "server/coordinator/shards/shard_event.h"
#include "server/shard/shard_observer.h"
#include "server/sync/round_plan.h"

namespace lodestar::rpc {

v1::ShardCommand ToProto(const ShardCommand& command, const CoordinatorRecord& follows = {});
absl::StatusOr<ShardCommand> FromProto(const v1::ShardCommand& command);
CoordinatorRecord FromProto(const v1::CoordinatorRecord& record);
void SetJournal(const JournalPlace& journal, v1::AttachShardRequest* request);
JournalPlace JournalOf(const v1::AttachShardRequest& request);
// An assignment as bytes, as journals keep it. Errors: InvalidArgument.
std::string FormatAssignment(const AssignCommand& assignment);
absl::StatusOr<AssignCommand> ParseAssignment(absl::string_view bytes);
v1::RoundPlan ToProto(const RoundPlan& plan);
absl::StatusOr<RoundPlan> FromProto(const v1::RoundPlan& plan);
// `report` has its shard.
void SetEvent(const ShardEvent& event, v1::ShardReport* report);
// Texts are PeerText(); that of a fault names the shard. Errors also: if the report has no event.
absl::StatusOr<ShardEvent> EventOf(const v1::ShardReport& report);
v1::RosterMember ToProto(const RosterMember& member);
RosterMember FromProto(const v1::RosterMember& member);

// The wire form has less: staleness histogram, totals and one sentence.
v1::ShardReport::Stats ToProto(const shard::ShardStats& stats, uint64_t bytes_received,
                               uint64_t bytes_sent);
shard::ShardStats FromProto(const v1::ShardReport::Stats& stats);
// The texts are cut by PeerText().
JournalState JournalOf(const shard::ShardStats& stats);

}  // namespace lodestar::rpc
