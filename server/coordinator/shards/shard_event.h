// What a shard tells the coordinator: answers to commands (shard_command.h), and what it finds by
// itself. None has an answer of its own; a contribution that is acknowledged has one, and is a
// call: Coordinator::OnContributed().
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

namespace lodestar {

// The coordinator ignores events whose server_incarnation is not its own.

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

// Has the sums of squares of the averaged gradient, one per segment. The coordinator answers with a
// NormTotalCommand.
struct ShardSquareSums {
  uint64_t server_incarnation = 0;
  Round round;
  std::vector<double> sums;
};

// The update of the round has made weights or optimizer state NaN or Inf.
struct ShardDiverged {
  uint64_t server_incarnation = 0;
  Round round;
  std::string text;
};

// It can save what it has, but not go on: the job ends with this error after a last checkpoint.
struct ShardFailing {
  uint64_t server_incarnation = 0;
  absl::Status error;
};

// Answer to AskConnectionsCommand.
struct ShardConnections {
  WorkerLife life;
  bool are_closed = false;  // by the other end, all over which this life has pushed or pulled
};

// An alarm for operators.
struct ShardAlarm {
  enum class Ends : uint8_t {
    kWithJournalTrouble,  // once a sign of life tells of no trouble with the journal
    kNever,
    kWithNextOfCertificate,  // once the next alarm of this kind comes, which may have no text
  };
  std::string text;  // Empty means that nothing is wrong any more.
  Ends ends = Ends::kWithJournalTrouble;
};

// It was told to stop, and goes.
struct ShardExiting {};

using ShardEvent =
    std::variant<ShardLoaded, ShardSaved, ShardSquareSums, ShardDiverged, ShardFailing,
                 ShardConnections, ShardAlarm, ShardExiting, WorkerFault>;

}  // namespace lodestar
