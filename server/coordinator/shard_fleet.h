// What the coordinator commands and asks of others. Implementations only queue: they return at once
// and never call back into the coordinator from inside a call. Answers come later, as the
// coordinator's On...() methods.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "common/layout.h"
#include "server/coordinator/cluster_snapshot.h"
#include "server/coordinator/coordinator_state.h"
#include "server/coordinator/messages.h"
#include "server/sync/round_plan.h"

namespace lodestar {

// Where weights come from.
struct InitialSource {};  // the layout's initialisers and the job's seed
struct CheckpointSource {
  std::string directory;
};
struct SafetensorsSource {
  std::string path;
};
struct ClientSource {};  // the first client pushes them
using WeightsSource =
    std::variant<InitialSource, CheckpointSource, SafetensorsSource, ClientSource>;

// Where all servers write their parts of a checkpoint.
struct SharedFolder {
  std::string path;       // empty: nothing is saved
  uint64_t claim_id = 0;  // of the coordinator's FolderLock in it
};

struct AssignCommand {
  uint64_t server_incarnation = 0;
  std::shared_ptr<const ClusterMap> map;
  WeightsSource source;
  SharedFolder folder = {};
  double learning_rate_scale = 1.0;  // of the job's schedule; below 1 after rollbacks
};

// The shards of the job. Commands to one shard are obeyed in the order given; each goes to all
// shards.
class ShardFleet {
 public:
  virtual ~ShardFleet() = default;
  // Discards everything and starts from the source. Answer: OnShardLoaded().
  virtual void Assign(const AssignCommand& command) = 0;
  virtual void OpenRound(const RoundPlan& plan) = 0;
  // All is in by the reports of these members. Answer: OnWorkerFault() for those whose part is not.
  virtual void CloseRound(Round round, absl::Span<const RosterMember> reported) = 0;
  virtual void SetMembers(ViewId view, absl::Span<const RosterMember> members) = 0;
  virtual void Drop(WorkerId worker, Incarnation incarnation, absl::string_view reason) = 0;
  // Captures each bucket when it is exactly at `version` (-1: as it is) and writes into
  // `directory`, which is created if it is not there. Answer: OnShardSaved().
  virtual void Save(Version version, absl::string_view directory) = 0;
  // The servers exit. `failure`: why the job has failed; empty: it has not.
  virtual void Stop(absl::string_view failure) = 0;
};

// A checkpoint all of whose shards are written and synced.
struct CheckpointRecord {
  std::string directory;        // temporary name, ends in ".tmp"
  std::string final_directory;  // replaced if it is there
  Round round;
  CoordinatorState state;
  std::vector<std::string> manifest_parts;  // by shard, as the shards reported them
};

struct PublishedCheckpoint {
  std::string path;
  Round round;
  uint64_t bytes = 0;
  std::string alarm = {};  // not empty: it is there, but what is beside it is not as it should be
};

// What ChooseRestore() found.
struct RestoreChoice {
  WeightsSource source = InitialSource{};
  std::optional<CoordinatorState> state = std::nullopt;  // of a checkpoint
  std::optional<Layout> layout =
      std::nullopt;  // of a checkpoint or weights file; model `client` needs it
  // Time-based or random; raised above that of the checkpoint if it is not.
  uint64_t server_incarnation = 0;
  std::string alarm = {};  // not empty: why not from where one would expect
  std::string note = {};   // what it starts from, and with which settings
  std::optional<ResumeSnapshot> resumed = std::nullopt;  // of a checkpoint
};

// The checkpoints on disk.
class CheckpointStore {
 public:
  virtual ~CheckpointStore() = default;
  // Writes the manifest, renames, verifies, deletes those beyond the ones to keep.
  // Answer: OnCheckpointPublished().
  virtual void Publish(CheckpointRecord record) = 0;
  // Removes the directory of a checkpoint that failed. No answer.
  virtual void Discard(absl::string_view directory) = 0;
  // Nothing is restored any more from checkpoints of `first_bad` rounds and more, by any process.
  // No answer.
  virtual void SetAside(Round first_bad) = 0;
  // Finds what to start from: the newest checkpoint that verifies, else the source of the flags.
  // Answer: OnRestoreChosen(), with an error if SetAside() has failed.
  virtual void ChooseRestore() = 0;
};

}  // namespace lodestar
