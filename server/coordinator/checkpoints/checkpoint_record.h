// What the coordinator knows of a checkpoint: before it is published, and after that. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/checkpoints/journal_manifest.h"
#include "common/job/job_spec.h"
#include "common/params/layout.h"
#include "common/runtime/ids.h"
#include "server/coordinator/checkpoints/coordinator_state.h"

namespace lodestar {

// A checkpoint all of whose shards are written and synced: the manifest is written, the directory
// renamed and verified, and those beyond the ones to keep are deleted. Answer:
// OnCheckpointPublished().
struct CheckpointRecord {
  std::string directory;        // temporary: of this try alone, ends in ".tmp"
  std::string final_directory;  // replaced if it is there
  Round round;
  CoordinatorState state;
  JobSpec job = {};
  Layout layout = {};
  std::vector<std::string> manifest_parts;  // by shard, as the shards reported them
  // The process that carries the task out fills in its `record`: the record that the task follows
  // from.
  JournalManifest journal = {};
};

struct PublishedCheckpoint {
  std::string path;
  Round round;
  uint64_t bytes = 0;
  // If not empty, the checkpoint is there, but what is beside it is not as it should be.
  std::string alarm = {};
  bool is_in_fallback = false;  // and not in the folder where checkpoints belong
  friend bool operator==(const PublishedCheckpoint&, const PublishedCheckpoint&) = default;
};

}  // namespace lodestar
