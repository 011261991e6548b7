// The tasks that the coordinator gives to the keeper of the checkpoints on disk. Tasks are carried
// out in the order given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/job/job_spec.h"
#include "common/params/layout.h"
#include "common/runtime/ids.h"
#include "server/coordinator/checkpoints/checkpoint_record.h"
#include "server/coordinator/checkpoints/coordinator_state.h"
#include "server/coordinator/model/resume_snapshot.h"
#include "server/coordinator/shards/journal_state.h"
#include "server/coordinator/shards/shard_command.h"

namespace lodestar {

// Removes the directory of a checkpoint that failed. No answer.
struct DiscardTask {
  std::string directory;
};

// Nothing is restored any more from checkpoints of `first_bad` rounds and more, by any process. No
// answer.
struct SetAsideTask {
  Round first_bad;
  std::string why;  // "have weights that ...", for people
};

// Marks a checkpoint as one that has everything, or takes that back before anything is acknowledged
// that it does not have: see JournalManifest. Answer: OnCheckpointMarked().
struct MarkTask {
  std::string path;
  bool is_complete = false;
  CoordinatorRecord follows = {};  // The record that the task follows from; its owner sets it.
};

// Finds what to start from: the newest checkpoint that verifies, else the source of the flags.
// Answer: OnRestoreChosen(), with an error if a SetAsideTask has failed.
struct ChooseRestoreTask {
  // The operator accepts that what came after it is lost: it is marked as complete.
  bool accepts_loss = false;
};

struct RestoreChoice {
  WeightsSource source = InitialSource{};
  std::optional<CoordinatorState> state = std::nullopt;  // of a checkpoint
  // The job asked for, with those settings of a checkpoint that the operator has not given. Not set
  // means that it stays as it is. Model `client` only.
  std::optional<JobSpec> job = std::nullopt;
  std::optional<Layout> layout =
      std::nullopt;  // of a checkpoint or weights file; model `client` needs it
  // Time-based or random; raised above that of the checkpoint if it is not.
  uint64_t server_incarnation = 0;
  // If not empty, says why nothing is restored from where one would expect.
  std::string alarm = {};
  std::string note = {};  // what it starts from, and with which settings
  // The checkpoint folder in which a new process has found nothing to go on from. Empty means that
  // it has gone on from something, or was told to begin anew.
  std::string empty_folder = {};
  std::optional<ResumeSnapshot> resumed = std::nullopt;  // of a checkpoint
  bool is_complete = false;                              // See JournalManifest.
};

using CheckpointTask =
    std::variant<CheckpointRecord, DiscardTask, SetAsideTask, MarkTask, ChooseRestoreTask>;

}  // namespace lodestar
