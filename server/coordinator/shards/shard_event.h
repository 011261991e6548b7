// SPDX-License-Identifier: Apache-2.0

// Events that a shard sends to the coordinator: answers to commands (shard_command.h), and what the
// shard finds by itself. No event has an answer of its own. Acknowledged contributions are no
// events, because they have an answer: they are calls of Coordinator::OnContributed().
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

// Carries the sums of squares of the averaged gradient, one per segment. The coordinator answers
// with a NormTotalCommand.
struct ShardSquareSums {
  uint64_t server_incarnation = 0;
  Round round;
  std::vector<double> sums;
};

// Reports that the update of the round has made weights or optimizer state NaN or Inf.
struct ShardDiverged {
  uint64_t server_incarnation = 0;
  Round round;
  std::string text;
};

// Reports that the shard can still save what it has, but cannot continue. The job ends with this
// error after a last checkpoint.
struct ShardFailing {
  uint64_t server_incarnation = 0;
  absl::Status error;
};

// Answer to AskConnectionsCommand.
struct ShardConnections {
  messages::WorkerLife life;
  // True means that the other end has closed all connections over which this life has pushed or
  // pulled.
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

// Reports that the server was told to stop, and exits.
struct ShardExiting {};

using ShardEvent =
    std::variant<ShardLoaded, ShardSaved, ShardSquareSums, ShardDiverged, ShardFailing,
                 ShardConnections, ShardAlarm, ShardExiting, sync::WorkerFault>;

}  // namespace lodestar::shards
