// SPDX-License-Identifier: Apache-2.0

// Writes one shard of a checkpoint as safetensors files.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/params/layout.h"
#include "common/plan/shard_memory.h"
#include "common/storage/file_system.h"
#include "server/shard/shard_state.h"

namespace lodestar::checkpoint {

struct ShardFilesSpec {
  std::string directory;  // must exist
  int shard = 0;
  int num_shards = 1;
  std::string model;  // JSON of the model spec for the files' metadata; may be empty
};

// Checks, before anything is written, that the weights and the optimizer states of the shard are
// not larger than the maximum file size of this process. Errors: those of CheckFileSize().
absl::Status CheckShardFileSizes(int shard, const plan::ShardMemory& memory);

// Writes the files, and blocks until they are on disk. If a write fails, removes the files. Errors:
// those of `file_system`; ResourceExhausted (names the path, the bytes wanted and the bytes free).
absl::StatusOr<checkpoints::ShardManifest> WriteShardFiles(storage::FileSystem& file_system,
                                                           const ShardFilesSpec& spec,
                                                           const params::Layout& layout,
                                                           const shard::ShardState& state);

}  // namespace lodestar::checkpoint
