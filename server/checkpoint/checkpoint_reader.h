// SPDX-License-Identifier: Apache-2.0

// Finds a checkpoint that verifies, and reads it for any number of servers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/params/layout.h"
#include "common/storage/file_system.h"
#include "server/shard/shard_state.h"

namespace lodestar::checkpoint {

struct FoundCheckpoint {
  std::string directory;
  checkpoints::Manifest manifest;
  // Alarms for the operator: one for every newer checkpoint that did not verify, and one for every
  // checkpoint whose name has the wrong round.
  std::vector<std::string> alarms;
};

// Returns an error which says that nothing is restored: the newest checkpoint, at `path`, could not
// be verified, but may be complete (see MayBeWhole()). The error has the code of `why`.
absl::Status UnreadCheckpoint(absl::string_view path, const absl::Status& why);

// Returns the newest checkpoint in `root` that verifies. The newest is the one with the highest
// round in its manifest, whatever its name. Ignores the checkpoints at `passed_over`. The result is
// not set if there is no checkpoint. Errors: DataLoss (no checkpoint verifies); UnreadCheckpoint()
// (a newer checkpoint could not be read, and may be complete).
absl::StatusOr<std::optional<FoundCheckpoint>> FindNewestCheckpoint(
    storage::FileSystem& file_system, const std::string& root,
    absl::Span<const std::string> passed_over = {});

// A CheckpointReader reads a verified checkpoint. It is thread-safe.
class CheckpointReader {
 public:
  // Maps the files of a checkpoint that was verified before.
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> Open(storage::FileSystem& file_system,
                                                                const std::string& directory);
  ~CheckpointReader();

  const checkpoints::Manifest& manifest() const { return manifest_; }

  // Sets the layout of the ranges that later calls read: the job's layout. An earlier release may
  // have written the checkpoint in another layout. Must be called before anything is read. Errors:
  // those of TransposedBetween().
  absl::Status ReadAs(const params::Layout& layout);

  // Checks that the checkpoint holds the state of an optimizer with these vectors. Errors:
  // InvalidArgument.
  absl::Status CheckStateNames(const std::vector<std::string>& state_names) const;
  // Returns the state of a bucket that covers `range`. When the checkpoint was written, buckets may
  // have had other ranges. The version of the result is the lowest version of the written buckets
  // that have elements of `range`. Requires: CheckStateNames() is OK. Errors: those of files;
  // ResourceExhausted (no memory).
  absl::StatusOr<shard::BucketState> ReadBucket(params::ElementRange range,
                                                const std::vector<std::string>& state_names) const;

 private:
  struct ShardData;
  CheckpointReader(std::string directory, checkpoints::Manifest manifest);
  absl::Status ReadVector(const std::string& state_name, params::ElementRange range,
                          absl::Span<float> out) const;
  // Reads a range of the layout in which the checkpoint was written.
  absl::Status ReadWritten(const std::string& state_name, params::ElementRange range,
                           absl::Span<float> out) const;
  // Returns `range`, extended to cover every transposed matrix of which it has an element. In the
  // written layout, the elements of `range` may be anywhere in such a matrix.
  params::ElementRange WrittenRange(params::ElementRange range) const;
  absl::StatusOr<std::shared_ptr<const shard::Page>> ReadPage(const std::string& state_name,
                                                              params::ElementRange range) const;

  const std::string directory_;
  const checkpoints::Manifest manifest_;
  std::vector<std::unique_ptr<ShardData>> shards_;
  std::vector<params::TransposedMatrix> transposed_;  // ascending by position
};

}  // namespace lodestar::checkpoint
