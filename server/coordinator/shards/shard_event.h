// SPDX-License-Identifier: Apache-2.0

// Events that a shard sends to the coordinator. Some are answers to commands (shard_command.h).
// Others report what the shard has found. A shard gets no answer to an event. It gets one when it
// reports that it has acknowledged a contribution. So this is not an event, but a call of
// Coordinator::OnContributed().
//
// A new event needs a member of ShardEvent, a message in ShardReport (proto/cluster_service.proto),
// its conversion in server/rpc/shard_convert.cc, and a case in Coordinator::OnShardEvent().
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/ids.h"
#include "server/sync/worker_fault.h"

namespace lodestar::shards {

// The coordinator ignores an event if its server_incarnation is not the coordinator's.

// Answer to AssignCommand.
struct ShardLoaded {
  uint64_t server_incarnation = 0;
  absl::Status status;
};

// Answer to SaveCommand.
struct ShardSaved {
  uint64_t server_incarnation = 0;
  std::string directory;
  absl::StatusOr<std::string> manifest_part;  // text of FormatShardManifest()
};

// Has the shard's sums of squares of the averaged gradient, one per segment. When it has those of
// all shards, the coordinator sends a NormTotalCommand.
struct ShardSquareSums {
  uint64_t server_incarnation = 0;
  Round round;
  std::vector<double> sums;
};

// Reports that the update of the round has made some weights or optimizer state NaN or Inf.
struct ShardDiverged {
  uint64_t server_incarnation = 0;
  Round round;
  std::string text;
};

// Reports that the shard cannot continue, but can still save what it has. The job ends with this
// error after a last checkpoint.
struct ShardFailing {
  uint64_t server_incarnation = 0;
  absl::Status error;
};

// Answer to AskConnectionsCommand.
struct ShardConnections {
  messages::WorkerLife life;
  // True means that the other end has closed all connections that this life has used to push or
  // pull.
  bool are_closed = false;
};

// An alarm for operators.
struct ShardAlarm {
  enum class Ends : uint8_t {
    kWithJournalTrouble,  // when a sign of life reports no trouble with the journal
    kNever,
    kWithNextOfCertificate,  // at the next certificate alarm, which may have no text
  };
  std::string text;  // empty means that nothing is wrong any more
  Ends ends = Ends::kWithJournalTrouble;
};

// Reports that the server exits, because it was told to stop.
struct ShardExiting {};

using ShardEvent =
    std::variant<ShardLoaded, ShardSaved, ShardSquareSums, ShardDiverged, ShardFailing,
                 ShardConnections, ShardAlarm, ShardExiting, sync::WorkerFault>;

}  // namespace lodestar::shards
