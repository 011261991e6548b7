// What a checkpoint directory holds: MANIFEST.json as plain data, its text form and back.
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
#include "common/ids.h"
#include "common/json.h"
#include "common/layout.h"
#include "server/shard/shard_state.h"

namespace lodestar {

inline constexpr int kCheckpointFormatVersion = 1;
inline constexpr char kManifestName[] = "MANIFEST.json";

struct CheckpointFile {
  std::string name;  // within the directory
  int64_t num_bytes = 0;
  uint32_t crc32c = 0;
};

struct BucketManifest {
  ElementRange range;
  Version version;
  std::vector<CountedWorker> counted;
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
};

// Both fit on the wire: equal dedup tables are written once. Errors of parsing: InvalidArgument
// naming what is wrong where.
std::string FormatShardManifest(const ShardManifest& shard);
absl::StatusOr<ShardManifest> ParseShardManifest(absl::string_view text);

std::string FormatManifest(const Manifest& manifest);
// Checks also that shards and buckets cover the parameter space exactly.
absl::StatusOr<Manifest> ParseManifest(absl::string_view text);

}  // namespace lodestar
