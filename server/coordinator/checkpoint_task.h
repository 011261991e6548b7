// SPDX-License-Identifier: Apache-2.0

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

namespace lodestar::coordinator {

// Removes the directory of a checkpoint that failed. No answer.
struct DiscardTask {
  std::string directory;
};

// Marks the checkpoints of `first_bad` or more rounds as bad, so that neither this process nor a
// later one restores from them. No answer.
struct SetAsideTask {
  Round first_bad;
  std::string why;  // the reason for operators, such as "have weights that gave NaN or Inf"
};

// Sets or removes the mark that a checkpoint is complete. The mark says that the checkpoint has
// everything that the servers have acknowledged: see JournalManifest. If `is_complete`, the task
// sets the mark. Otherwise it removes the mark, and the servers may then acknowledge more. Answer:
// OnCheckpointMarked().
struct MarkTask {
  std::string path;
  bool is_complete = false;
  // The record of the coordinator's journal with the command that caused this task. The
  // coordinator's owner sets it.
  shards::CoordinatorRecord follows = {};
};

// Chooses the weights that the job starts from. They come from the newest checkpoint that passes
// verification. If there is none, the flags say where they come from. Answer: OnRestoreChosen().
// The answer is an error if an earlier SetAsideTask has failed.
struct ChooseRestoreTask {
  // True means that the operator accepts the loss of everything after the chosen checkpoint. The
  // checkpoint is then marked as complete.
  bool accepts_loss = false;
};

struct RestoreChoice {
  shards::WeightsSource source = shards::InitialSource{};
  std::optional<checkpoints::CoordinatorState> state = std::nullopt;  // of a checkpoint
  // The job's new settings: those that the operator has given, and all others as in the checkpoint.
  // Set only for the model `client`. Not set means that the settings do not change.
  std::optional<job::JobSpec> job = std::nullopt;
  std::optional<params::Layout> layout =
      std::nullopt;  // of the checkpoint or weights file; needed for the model `client`
  // The number of the incarnation that the servers begin with. It is made from the present time or
  // at random. If the checkpoint has this incarnation or a larger one, the coordinator uses a
  // larger number.
  uint64_t server_incarnation = 0;
  // A message for operators that says why the run starts from another checkpoint than expected, or
  // from none. Empty means that there is no reason for an alarm.
  std::string alarm = {};
  std::string note = {};  // says what the run starts from, and with which settings
  // Path of the checkpoint folder, if a new process has found no checkpoint in it and also nothing
  // else to start from. Otherwise empty.
  std::string empty_folder = {};
  std::optional<model::ResumeSnapshot> resumed = std::nullopt;  // of a checkpoint
  bool is_complete = false;                                     // See JournalManifest.
};

using CheckpointTask = std::variant<checkpoints::CheckpointRecord, DiscardTask, SetAsideTask,
                                    MarkTask, ChooseRestoreTask>;

}  // namespace lodestar::coordinator
