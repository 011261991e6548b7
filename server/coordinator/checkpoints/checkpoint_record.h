// SPDX-License-Identifier: Apache-2.0

// What the coordinator knows of a checkpoint before and after its publication. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/checkpoints/journal_manifest.h"
#include "common/job/job_spec.h"
#include "common/params/layout.h"
#include "common/runtime/ids.h"
#include "server/coordinator/checkpoints/coordinator_state.h"

namespace lodestar::checkpoints {

// A task for a checkpoint whose shards are all written and synced. The task writes the manifest,
// renames the directory and verifies it. Then it deletes old checkpoints. Its answer is
// OnCheckpointPublished().
struct CheckpointRecord {
  std::string directory;        // temporary; only this try uses it; ends in ".tmp"
  std::string final_directory;  // replaced if it exists
  Round round;
  CoordinatorState state;
  job::JobSpec job = {};
  params::Layout layout = {};
  std::vector<std::string> manifest_parts;  // by shard, as the shards reported them
  // The process that carries out the task sets journal.record. It sets the number of the record of
  // the coordinator's journal that caused the task.
  JournalManifest journal = {};
};

struct PublishedCheckpoint {
  std::string path;
  Round round;
  uint64_t bytes = 0;
  // A message that says what is wrong in the folder of the checkpoint, although the checkpoint was
  // published. Empty means that nothing is wrong.
  std::string alarm = {};
  bool is_in_fallback = false;  // true means not in the usual checkpoint folder
  friend bool operator==(const PublishedCheckpoint&, const PublishedCheckpoint&) = default;
};

}  // namespace lodestar::checkpoints
