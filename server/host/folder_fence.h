// SPDX-License-Identifier: Apache-2.0

// FolderFence decides which files a server above shard 0 reads and writes for its coordinator. A
// coordinator names folders for checkpoints and for weights to start from. Without the fence, a
// program that takes the coordinator's place could name any file of this machine.
//
// If this server's operator has named folders and files, only these, and what is below them, may be
// read and written. If the operator has named none, these rules hold instead:
// - The coordinator must hold the LOCK of a folder for saves.
// - Only checkpoints, with names like "round-00001234", and safetensors files are read.
//
// In both cases paths are absolute and without "..". A save goes into a directory with a name like
// "round-00001234.<try>.tmp". Neither a checkpoint nor a file in it may be a link. Links are
// allowed only in a folder of weights that the operator has named itself.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/coordinator/shards/shard_command.h"

namespace lodestar::host {

// The class checks the real disk, and blocks for it. It is thread-safe.
class FolderFence {
 public:
  // `named` has the paths that this server's operator has named. Relative paths start at the
  // working directory.
  explicit FolderFence(std::vector<std::string> named);

  // Checks the source of weights that an assignment names. If this or another check fails, it
  // returns FailedPrecondition, naming the path and what would be allowed.
  absl::Status CheckSource(const shards::WeightsSource& source) const;
  // Checks the folder that an assignment names for saves.
  absl::Status CheckFolder(const shards::SharedFolder& folder) const;
  // Checks the directory of a save. `folder` is that of the assignment.
  absl::Status CheckSave(const shards::SharedFolder& folder, const std::string& directory) const;
  absl::Status CheckPublished(const std::string& path) const;

 private:
  // Returns true if `path` is a named path. If `itself` is false, also returns true if `path` lies
  // below a named path.
  bool IsNamed(const std::string& path, bool itself) const;
  absl::Status CheckNamed(const std::string& path) const;
  absl::Status CheckCheckpoint(const std::string& path) const;

  const std::vector<std::string> named_;
};

}  // namespace lodestar::host
