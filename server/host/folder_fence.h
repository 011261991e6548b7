// What a server above shard 0 lets its coordinator have it read and write. A coordinator names
// folders for checkpoints and weights to start from; whoever takes its place could name any file of
// this machine.
//
// Folders and files that this server's operator has named, if there are any, are all that may be
// read and written, with what is below them. Where none is named, paths must have the form that
// those of ours have:
//   a save goes into "round-00001234.<try>.tmp" in a folder whose LOCK the coordinator holds;
//   what is read is a checkpoint, "round-00001234", or a safetensors file.
// Paths are absolute and without "..", and no link is followed at their end or within a checkpoint;
// in a folder of weights that the operator has named itself links are followed.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/coordinator/shard_command.h"

namespace lodestar {

// Looks at the real disk, and blocks for it. Thread-safe.
class FolderFence {
 public:
  // `named`: by this server's operator; relative ones count from the working directory.
  explicit FolderFence(std::vector<std::string> named);

  // Errors of all: FailedPrecondition naming the path, and what would be allowed.
  absl::Status CheckSource(const WeightsSource& source) const;
  // Where an assignment says that saves will go.
  absl::Status CheckFolder(const SharedFolder& folder) const;
  // `folder`: of the assignment.
  absl::Status CheckSave(const SharedFolder& folder, const std::string& directory) const;
  absl::Status CheckPublished(const std::string& path) const;

 private:
  // Also below what is named, unless `itself`.
  bool IsNamed(const std::string& path, bool itself) const;
  absl::Status CheckNamed(const std::string& path) const;
  absl::Status CheckCheckpoint(const std::string& path) const;

  const std::vector<std::string> named_;
};

}  // namespace lodestar
