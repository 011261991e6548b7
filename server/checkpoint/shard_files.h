// One shard of a checkpoint as safetensors files: writing, and reading any range from the files of
// all shards.
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
  std::string directory;  // exists
  int shard = 0;
  int num_shards = 1;
  std::string model;  // JSON of the model spec for the files' metadata; may be empty
};

// Compares the files of a shard with what this process may write into one file, as far as their
// sizes are known before they are written. Errors: those of CheckFileSize().
absl::Status CheckShardFileSizes(int shard, const ShardMemory& memory);

// Writes the files and waits until the disk has them. Blocks for the disk. Errors: those of files;
// ResourceExhausted with path, bytes wanted and bytes free. Files of a failed call are removed.
absl::StatusOr<ShardManifest> WriteShardFiles(FileSystem& file_system, const ShardFilesSpec& spec,
                                              const Layout& layout, const shard::ShardState& state);

}  // namespace lodestar::checkpoint
