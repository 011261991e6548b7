// Finds a checkpoint that verifies and reads it onto any number of servers.
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
  Manifest manifest;
  // One text for every newer checkpoint that did not verify, and for every one whose name lies: to
  // be shown, not to be swallowed.
  std::vector<std::string> alarms;
};

// Returns the error, with the code of `why`, that nothing is restored because the checkpoint at
// `path` is the newest, could not be verified, and MayBeWhole().
absl::Status UnreadCheckpoint(absl::string_view path, const absl::Status& why);

// The newest checkpoint in `root` that verifies; none if there is no checkpoint at all. How new one
// is, its manifest says, not its name. Those at `passed_over` are as if they were not there.
// Errors: DataLoss if there are some and none verifies; UnreadCheckpoint() of one that is newer
// than those that verify.
absl::StatusOr<std::optional<FoundCheckpoint>> FindNewestCheckpoint(
    FileSystem& file_system, const std::string& root,
    absl::Span<const std::string> passed_over = {});

// Reads a verified checkpoint. Thread-safe.
class CheckpointReader {
 public:
  // Maps the files; trusts that they were verified.
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> Open(FileSystem& file_system,
                                                                const std::string& directory);
  ~CheckpointReader();

  const Manifest& manifest() const { return manifest_; }

  // From now on ranges are of `layout`, that of "the job", also if the checkpoint was written in
  // the one of an earlier release. Before anything is read. Errors: as TransposedBetween().
  absl::Status ReadAs(const Layout& layout);

  // Whether it holds the state of an optimizer with these vectors. Errors: InvalidArgument.
  absl::Status CheckStateNames(const std::vector<std::string>& state_names) const;
  // State for a bucket that covers `range`, however the buckets were cut that were written; its
  // version is the lowest of those that hold elements of it. Requires: CheckStateNames() is OK.
  // Errors: those of files; ResourceExhausted without memory for it.
  absl::StatusOr<shard::BucketState> ReadBucket(ElementRange range,
                                                const std::vector<std::string>& state_names) const;

 private:
  struct ShardData;
  CheckpointReader(std::string directory, Manifest manifest);
  absl::Status ReadVector(const std::string& state_name, ElementRange range,
                          absl::Span<float> out) const;
  // Reads a range of the layout in which the checkpoint was written.
  absl::Status ReadWritten(const std::string& state_name, ElementRange range,
                           absl::Span<float> out) const;
  // `range` and the matrices in which its elements lie scattered.
  ElementRange WrittenRange(ElementRange range) const;
  absl::StatusOr<std::shared_ptr<const shard::Page>> ReadPage(const std::string& state_name,
                                                              ElementRange range) const;

  const std::string directory_;
  const Manifest manifest_;
  std::vector<std::unique_ptr<ShardData>> shards_;
  std::vector<TransposedMatrix> transposed_;  // ascending
};

}  // namespace lodestar::checkpoint
