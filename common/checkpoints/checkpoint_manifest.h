// What a checkpoint directory holds: MANIFEST.json as plain data, its text form and back. Servers
// write it, and every program that needs a model reads it.
//
//   round-00001234/
//     MANIFEST.json
//     shard-00000-of-00002.safetensors            weights of one shard
//     shard-00000-of-00002.optimizer.safetensors  its optimizer state, if the optimizer has any
//
// A tensor that lies whole in a shard is stored under its own name and shape; the part of one that
// a shard boundary cuts is stored flat as "name@begin:end", in elements of the tensor. State
// tensors are called "exp_avg/name", with the state vector's name before the slash.
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

namespace lodestar {

inline constexpr int kCheckpointFormatVersion = 1;
inline constexpr char kManifestName[] = "MANIFEST.json";

struct CheckpointFile {
  std::string name;  // within the directory
  int64_t num_bytes = 0;
  uint32_t crc32c = 0;
};

// The last contribution of one worker that a bucket has counted.
struct CountedRow {
  WorkerId worker;
  Incarnation incarnation;
  Round round;
};

// What the norm of a contribution usually is.
struct NormRow {
  double norm = 0.0;
  // How many contributions the norm is known from. 0 means that it is not known.
  int64_t contributions = 0;
};

// How far an optimizer's step is that is made in parts, as contributions come (async_local_sgd).
struct DelayedStepRow {
  int64_t num_parts = 0;  // 0 means that no step is begun
  int64_t arrived = 0;
  int64_t planned_weight = 0;
  int64_t arrived_weight = 0;
};

struct BucketManifest {
  ElementRange range;
  Version version;
  std::vector<CountedRow> counted;  // ascending by worker
  NormRow usual_norm = {};
  DelayedStepRow delayed = {};
};

// The part that the server of one shard writes.
struct ShardManifest {
  int shard = 0;
  ElementRange range;
  CheckpointFile weights;
  CheckpointFile optimizer;              // empty name: the optimizer has no state
  std::vector<std::string> state_names;  // of the optimizer's vectors
  std::vector<BucketManifest> buckets;   // in order, covering `range`
};

struct Manifest {
  Round round;
  Layout layout;
  std::vector<ShardManifest> shards;  // in order, covering the parameter space
  Json coordinator = Json::object();  // cursor, incarnations: the coordinator's own business
  Json settings = Json::object();     // of the job, for people and for --resume
  std::string model;                  // JSON text of the model spec; may be empty
  // Revision of the folder's claim (FolderLock::revision()) by the server that has written it. 0 if
  // the folder has never had a leader lease, or an earlier release has written it.
  int64_t lease_revision = 0;
  JournalManifest journal = {};
  // --checkpoint_dir of the server that has written the checkpoint into its --fallback_dir. Empty
  // means that the checkpoint is in its --checkpoint_dir, or of an earlier release.
  std::string run_folder = {};
};

// Returns true if a leader has written `manifest` after another one had taken its place: `other`
// has a higher revision, and no more rounds.
bool IsOvertaken(const Manifest& manifest, const Manifest& other);

// Both fit on the wire: equal dedup tables are written once. Errors of parsing: InvalidArgument
// naming what is wrong where.
std::string FormatShardManifest(const ShardManifest& shard);
absl::StatusOr<ShardManifest> ParseShardManifest(absl::string_view text);

std::string FormatManifest(const Manifest& manifest);
// Checks also that shards and buckets cover the parameter space exactly. Also Unimplemented: sound,
// and of a later version.
absl::StatusOr<Manifest> ParseManifest(absl::string_view text);

// Reads the manifest of a checkpoint directory. Errors: those of files; DataLoss if it does not
// parse; Unimplemented as above.
absl::StatusOr<Manifest> ReadManifest(FileSystem& file_system, const std::string& directory);

// Returns true if a checkpoint that failed to verify with `status` may be whole: a later release
// has written it (Unimplemented), this process may not read it (PermissionDenied), has no
// descriptors or memory for it (ResourceExhausted), or its file server is away (Unavailable). A
// disk that cannot read what it has (EIO) has damaged it.
bool MayBeWhole(const absl::Status& status);

// Marks the checkpoint as one that has everything: see JournalManifest. The manifest is replaced at
// once or not at all, and on disk when this returns. Changes nothing if it is marked so already, or
// was written by servers without a journal. Errors: those of ReadManifest() and of files.
absl::Status MarkComplete(FileSystem& file_system, const std::string& directory);
// Takes that mark back: rounds from then on are in the coordinator's journal `journal_id`, behind
// `record`, which may be another journal than when the checkpoint was written. Else as
// MarkComplete().
absl::Status MarkIncomplete(FileSystem& file_system, const std::string& directory,
                            uint64_t journal_id, uint64_t record);

// Reads the file whole and compares. Blocks for the disk. Errors: those of MayBeWhole();
// DataLoss naming the file, what it has and what the manifest says.
absl::Status VerifyCheckpointFile(FileSystem& file_system, const std::string& directory,
                                  const CheckpointFile& file);

// Reads every file of the checkpoint and compares it with the manifest. Blocks for the disk.
// Errors: those of MayBeWhole(); NotFound without a manifest; DataLoss naming file, offset or sum,
// and what was expected.
absl::StatusOr<Manifest> VerifyCheckpoint(FileSystem& file_system, const std::string& directory);

}  // namespace lodestar
