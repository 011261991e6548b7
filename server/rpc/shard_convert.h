// SPDX-License-Identifier: Apache-2.0

// Converts between the messages of proto/cluster_service.proto about other servers' shards and the
// native types of coordinator and shard. Errors: InvalidArgument, naming the field.
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

v1::ShardCommand ToProto(const shards::ShardCommand& command,
                         const shards::CoordinatorRecord& follows = {});
absl::StatusOr<shards::ShardCommand> FromProto(const v1::ShardCommand& command);
shards::CoordinatorRecord FromProto(const v1::CoordinatorRecord& record);
void SetJournal(const shards::JournalPlace& journal, v1::AttachShardRequest* request);
shards::JournalPlace JournalOf(const v1::AttachShardRequest& request);
// Returns an assignment as bytes, for journals. Errors of parsing: InvalidArgument.
std::string FormatAssignment(const shards::AssignCommand& assignment);
absl::StatusOr<shards::AssignCommand> ParseAssignment(absl::string_view bytes);
v1::RoundPlan ToProto(const sync::RoundPlan& plan);
absl::StatusOr<sync::RoundPlan> FromProto(const v1::RoundPlan& plan);
// Sets the event. `report` already has its shard.
void SetEvent(const shards::ShardEvent& event, v1::ShardReport* report);
// Returns the event of a report. Texts are passed through PeerText(), and the text of a fault gets
// the shard's name. Errors: InvalidArgument (a field is wrong, or the report has no event).
absl::StatusOr<shards::ShardEvent> EventOf(const v1::ShardReport& report);
v1::RosterMember ToProto(const sync::RosterMember& member);
sync::RosterMember FromProto(const v1::RosterMember& member);

// Converts statistics. The wire form has only the staleness histogram, totals and one sentence.
v1::ShardReport::Stats ToProto(const shard::ShardStats& stats, uint64_t bytes_received,
                               uint64_t bytes_sent);
shard::ShardStats FromProto(const v1::ShardReport::Stats& stats);
// Returns the state of the journal, with its texts cut by PeerText().
shards::JournalState JournalOf(const shard::ShardStats& stats);

}  // namespace lodestar::rpc
