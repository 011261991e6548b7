// SPDX-License-Identifier: Apache-2.0

// Commands of the coordinator to the shards. Each command goes to all shards. A shard carries out
// its commands in order. If it gets a command twice, the second one changes nothing. It answers
// later, with events (shard_event.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "common/job/job_spec.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/ids.h"
#include "server/sync/round_plan.h"

namespace lodestar::shards {

// The sources of the first weights.
struct InitialSource {};  // initialisers of the layout, and the seed of the job
struct CheckpointSource {
  std::string directory;
  // The fields below are for messages to operators, and are not sent.
  uint64_t bytes = 0;
  absl::Duration age = absl::ZeroDuration();  // age when the checkpoint was chosen
};
struct SafetensorsSource {
  std::string path;
};
struct ClientSource {};  // the first client pushes the weights
using WeightsSource =
    std::variant<InitialSource, CheckpointSource, SafetensorsSource, ClientSource>;

// The folder in which all servers write their parts of a checkpoint.
struct SharedFolder {
  std::string path;       // empty if nothing is saved
  uint64_t claim_id = 0;  // claim ID of the coordinator's FolderLock in the folder
};

// Makes a server discard everything and load weights from `source`. Answer: ShardLoaded.
struct AssignCommand {
  // Number of this incarnation of the servers. Incarnations of workers that began earlier are
  // lower. Those that begin from now on are higher.
  uint64_t server_incarnation = 0;
  job::JobSpec job;  // its learning rate includes the changes by rollbacks
  std::shared_ptr<const messages::ClusterMap> map;
  WeightsSource source;
  SharedFolder folder = {};
  std::string life_key = {};  // see CoordinatorConfig
};

struct OpenRoundCommand {
  sync::RoundPlan plan;
};

// Closes the round. `reported` are the members that have reported it, and so have sent their parts.
// Answer: WorkerFault for each of them whose part is missing.
struct CloseRoundCommand {
  Round round;
  std::vector<sync::RosterMember> reported;
};

struct MembersCommand {
  ViewId view;
  std::vector<sync::RosterMember> members;
};

struct DropCommand {
  WorkerId worker;
  Incarnation incarnation;
  std::string reason;
};

// Makes a server capture each of its buckets and write it into `directory`. The server creates the
// directory if it does not exist. Answer: ShardSaved.
struct SaveCommand {
  // Each bucket is captured when it is about to collect this round. Not set means that each bucket
  // is captured at once.
  std::optional<Round> round;
  std::string directory;
  // Present claim ID of the coordinator's SharedFolder. It differs from the ID in AssignCommand if
  // a new process of the coordinator has continued the job. 0 means that the ID in AssignCommand is
  // still valid.
  uint64_t folder_claim_id = 0;
};

// Reports that the files of a SaveCommand are now a checkpoint. A process that starts from it needs
// no older data.
struct PublishedCommand {
  std::string directory;  // directory of the SaveCommand
  std::string path;       // path of the checkpoint
  Round round;
};

// Has the total of the sums of squares of the round. Follows the ShardSquareSums of all shards.
struct NormTotalCommand {
  Round round;
  double total_square_sum = 0.0;
};

// Asks whether the worker of this life has closed all its connections to the server. Answer:
// ShardConnections.
struct AskConnectionsCommand {
  messages::WorkerLife life;
};

// Makes the servers exit.
struct StopCommand {
  std::string failure;  // why the job or the server has failed; empty if neither has
  // If not 0, only the server with this instance exits, and the job waits for another server of its
  // shard. 0 means that all servers exit.
  uint64_t instance_id = 0;
};

using ShardCommand = std::variant<AssignCommand, OpenRoundCommand, CloseRoundCommand,
                                  MembersCommand, DropCommand, SaveCommand, PublishedCommand,
                                  NormTotalCommand, AskConnectionsCommand, StopCommand>;

// A command that is sent again to one shard. Its server may have missed the command while it was
// not connected.
struct RepeatedCommand {
  int shard = 0;
  ShardCommand command;
};

}  // namespace lodestar::shards
