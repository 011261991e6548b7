// Why what a client brings or proposes is not, or cannot be, what the job has. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/params/encoding.h"

namespace lodestar {

struct ModelRefusal {
  enum class Kind : uint8_t {
    kEncoding,      // The client does not know the job's encoding, which the flag `subject` names.
    kOtherTensors,  // The client would go by the job's layout, and has other tensors: see `cause`.
    kOtherLayout,   // The layout of the client is not the job's: see `cause`.
    kLayoutHash,    // `subject` is the hash of another layout than the job's.
    kLacksLayout,   // The job has no layout yet, and this client brings none.
    kAwaitsOther,   // The client `subject`, whose model the job has, may come with the weights.
    kSettings,      // The proposed settings make no job that the servers can have: see `cause`.
    // The layout that the client brings cannot be the job's.
    kTensors,  // It has too many tensors.
    kNames,    // Names and shapes of its tensors take too many bytes.
    kShards,   // It cannot be cut into shards: see `cause`.
    kMemory,   // The part of one server, `largest_shard` elements, takes too much: see `cause`.
    kCut,      // Its shards cannot be cut into buckets: see `cause`.
    kBuckets,  // It would have too many buckets.
  };
  Kind kind = Kind::kEncoding;
  std::string subject = {};
  // Tensors, bytes, elements (of kMemory) or buckets of the layout that the client brings.
  int64_t present = 0;
  int64_t allowed = 0;        // so many of them; not of kMemory
  int64_t largest_shard = 0;  // of kMemory
  absl::Status cause = absl::OkStatus();
  std::vector<Encoding::Kind> known = {};  // of kEncoding: those that the client knows
  friend bool operator==(const ModelRefusal&, const ModelRefusal&) = default;
};

}  // namespace lodestar
