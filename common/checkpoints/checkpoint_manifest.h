// SPDX-License-Identifier: Apache-2.0

// The content of a checkpoint directory: MANIFEST.json as plain data, and its conversion to and
// from text. Servers write it, and every program that needs a model reads it.
//
//   round-00001234/
//     MANIFEST.json
//     shard-00000-of-00002.safetensors            weights of one shard
//     shard-00000-of-00002.optimizer.safetensors  its optimizer state, if the optimizer has any
//
// A tensor that lies in one shard is stored under its own name and shape. If a shard boundary cuts
// a tensor, each part is stored flat as "name@begin:end", in elements of the tensor. State tensors
// are called "exp_avg/name", with the state vector's name before the slash.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/checkpoints/journal_manifest.h"
#include "common/params/layout.h"
#include "common/runtime/ids.h"
#include "common/runtime/json.h"
#include "common/storage/file_system.h"

namespace lodestar::checkpoints {

inline constexpr int kCheckpointFormatVersion = 1;
inline constexpr char kManifestName[] = "MANIFEST.json";

struct CheckpointFile {
  std::string name;  // file name in the checkpoint's directory
  int64_t num_bytes = 0;
  uint32_t crc32c = 0;
};

// The last contribution of one worker that was counted in a bucket.
struct CountedRow {
  WorkerId worker;
  Incarnation incarnation;
  Round round;
};

// The usual norm of a contribution to a bucket.
struct NormRow {
  double norm = 0.0;
  // Number of contributions that the norm is computed from. 0 means that the norm is not known.
  int64_t contributions = 0;
};

// State of an outer step that is made in parts, as contributions arrive (async_local_sgd).
struct DelayedStepRow {
  int64_t num_parts = 0;  // 0 means that no outer step has begun
  int64_t arrived = 0;
  int64_t planned_weight = 0;
  int64_t arrived_weight = 0;
};

struct BucketManifest {
  params::ElementRange range;
  Version version;
  std::vector<CountedRow> counted;  // in ascending order of the workers
  NormRow usual_norm = {};
  DelayedStepRow delayed = {};
};

// The part of the manifest that the server of one shard writes.
struct ShardManifest {
  int shard = 0;
  params::ElementRange range;
  CheckpointFile weights;
  CheckpointFile optimizer;              // an empty name means that the optimizer has no state
  std::vector<std::string> state_names;  // names of the optimizer's state vectors
  std::vector<BucketManifest> buckets;   // in order, covering `range`
};

struct Manifest {
  Round round;
  params::Layout layout;
  std::vector<ShardManifest> shards;  // in order, covering the parameter space
  // State of the coordinator, in a format that the coordinator defines. It includes the position in
  // the training data and the workers' incarnations.
  Json coordinator = Json::object();
  Json settings = Json::object();  // settings of the job, for readers and for --resume
  std::string model;               // JSON text of the model spec; may be empty
  // FolderLock::revision() of the server that wrote the checkpoint. 0 means that the folder has
  // never had a leader lease, or that an earlier release wrote the checkpoint.
  int64_t lease_revision = 0;
  JournalManifest journal = {};
  // --checkpoint_dir of the server, if it wrote the checkpoint into its --fallback_dir. Otherwise,
  // and in checkpoints of earlier releases, empty.
  std::string run_folder = {};
};

// Returns true if an old leader wrote `manifest` after a new leader, which wrote `other`, had
// replaced it. The sign for this is that `other` has a higher lease_revision, but no higher round.
bool IsOvertaken(const Manifest& manifest, const Manifest& other);

// FormatShardManifest() turns the part of a shard into text, and ParseShardManifest() reads that
// text. Equal lists of CountedRow are written once, so that the text is small enough for a message.
// Errors: InvalidArgument naming the field and the fault.
std::string FormatShardManifest(const ShardManifest& shard);
absl::StatusOr<ShardManifest> ParseShardManifest(absl::string_view text);

std::string FormatManifest(const Manifest& manifest);
// Parses a manifest. Checks also that shards and buckets cover the parameter space exactly. Errors:
// those of ParseShardManifest(); Unimplemented (a later version wrote the manifest).
absl::StatusOr<Manifest> ParseManifest(absl::string_view text);

// Reads the manifest of a checkpoint directory. Errors: those of files; DataLoss (it cannot be
// parsed); Unimplemented (it is of a later version).
absl::StatusOr<Manifest> ReadManifest(storage::FileSystem& file_system,
                                      const std::string& directory);

// Returns true if a checkpoint may be whole although it could not be verified because of `status`:
//   Unimplemented: a later release wrote the checkpoint
//   PermissionDenied: this process may not read the checkpoint
//   ResourceExhausted: this process has no descriptors or memory to read it
//   Unavailable: the file server does not answer
// If a disk cannot read its data (EIO), the checkpoint counts as damaged.
bool MayBeWhole(const absl::Status& status);

// Sets JournalManifest::is_complete in the checkpoint's manifest. The manifest is replaced
// atomically, and is on disk when the function returns. Changes nothing if the checkpoint is marked
// already, or if servers without a journal wrote it. Errors: those of ReadManifest() and of files.
absl::Status MarkComplete(storage::FileSystem& file_system, const std::string& directory);
// Removes the mark of MarkComplete(). The manifest then says that later rounds are in the
// coordinator's journal `journal_id`, after `record`. This may be another journal than the one that
// the manifest had before. Errors: those of MarkComplete().
absl::Status MarkIncomplete(storage::FileSystem& file_system, const std::string& directory,
                            uint64_t journal_id, uint64_t record);

// Reads the whole file and checks its size and checksum. Blocks on the disk. Errors: those that
// MayBeWhole() names; DataLoss naming the file, and the actual and the expected value.
absl::Status VerifyCheckpointFile(storage::FileSystem& file_system, const std::string& directory,
                                  const CheckpointFile& file);

// Reads every file of the checkpoint and compares it with the manifest. Blocks on the disk. Errors:
// those that MayBeWhole() names; NotFound (no manifest); DataLoss naming the file and what is wrong
// with it.
absl::StatusOr<Manifest> VerifyCheckpoint(storage::FileSystem& file_system,
                                          const std::string& directory);

}  // namespace lodestar::checkpoints
