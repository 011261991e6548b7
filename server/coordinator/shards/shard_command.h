// The commands of the coordinator to the shards. Each command goes to all of them; those to one
// shard are obeyed in the order given, and the same one twice is as good as once. Answers come
// later, as events (shard_event.h).
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

namespace lodestar {

// The sources that weights come from.
struct InitialSource {};  // the layout's initialisers and the job's seed
struct CheckpointSource {
  std::string directory;
  // These are for people, and do not travel.
  uint64_t bytes = 0;
  absl::Duration age = absl::ZeroDuration();  // when it was chosen
};
struct SafetensorsSource {
  std::string path;
};
struct ClientSource {};  // the first client pushes them
using WeightsSource =
    std::variant<InitialSource, CheckpointSource, SafetensorsSource, ClientSource>;

// The folder in which all servers write their parts of a checkpoint.
struct SharedFolder {
  std::string path;       // empty if nothing is saved
  uint64_t claim_id = 0;  // of the coordinator's FolderLock in it
};

// Discards everything and starts from the source. Answer: ShardLoaded.
struct AssignCommand {
  // It is above that of every worker's life that began with earlier servers' lives, and below all
  // that begin now.
  uint64_t server_incarnation = 0;
  JobSpec job;  // with the learning rate that rollbacks have left of the configured one
  std::shared_ptr<const ClusterMap> map;
  WeightsSource source;
  SharedFolder folder = {};
  std::string life_key = {};  // see CoordinatorConfig
};

struct OpenRoundCommand {
  RoundPlan plan;
};

// All is in by the reports of these members. Answer: WorkerFault for those whose part is not.
struct CloseRoundCommand {
  Round round;
  std::vector<RosterMember> reported;
};

struct MembersCommand {
  ViewId view;
  std::vector<RosterMember> members;
};

struct DropCommand {
  WorkerId worker;
  Incarnation incarnation;
  std::string reason;
};

// Captures each bucket and writes it into `directory`, which is created if it is not there. Answer:
// ShardSaved.
struct SaveCommand {
  // The round that every bucket is about to collect. Not set means that each bucket is captured as
  // it is.
  std::optional<Round> round;
  std::string directory;
  // The claim ID of the coordinator's SharedFolder, as it is now: another process may go on with
  // the job that was assigned. 0 means as it was assigned.
  uint64_t folder_claim_id = 0;
};

// What a SaveCommand has begun is a checkpoint: a process that starts from it needs nothing from
// before.
struct PublishedCommand {
  std::string directory;  // of the SaveCommand
  std::string path;       // of the checkpoint
  Round round;
};

// Tells what the shards' sums of squares of the round make together. It is the answer to
// ShardSquareSums.
struct NormTotalCommand {
  Round round;
  double total_square_sum = 0.0;
};

// Whether the other end has closed all connections of this life to the server. Answer:
// ShardConnections.
struct AskConnectionsCommand {
  WorkerLife life;
};

// The servers exit.
struct StopCommand {
  std::string failure;  // why the job has failed, or the server has; empty if neither has
  // Names the one server that exits while the job waits for another one. 0 means all servers.
  uint64_t instance_id = 0;
};

using ShardCommand = std::variant<AssignCommand, OpenRoundCommand, CloseRoundCommand,
                                  MembersCommand, DropCommand, SaveCommand, PublishedCommand,
                                  NormTotalCommand, AskConnectionsCommand, StopCommand>;

// Tells one shard again what its server may have missed while it was not connected.
struct RepeatedCommand {
  int shard = 0;
  ShardCommand command;
};

}  // namespace lodestar
