// SPDX-License-Identifier: Apache-2.0

// Why the coordinator refuses the model or the settings of a client. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/params/encoding.h"

namespace lodestar::model {

struct ModelRefusal {
  enum class Kind : uint8_t {
    kEncoding,      // The client does not know the job's encoding, which the flag `subject` names.
    kOtherTensors,  // Tensors of a client that would use the job's layout differ: see `cause`.
    kOtherLayout,   // The layout of the client is not the job's: see `cause`.
    kLayoutHash,    // `subject` is the hash of a layout that is not the job's.
    kLacksLayout,   // The job has no layout yet, and the client brings none.
    kAwaitsOther,   // The job has the model of the client `subject`, which may still come back.
    kSettings,      // The servers cannot take a job with the proposed settings: see `cause`.
    // The remaining kinds say why the layout that the client brings cannot be the job's.
    kTensors,  // The layout has too many tensors.
    kNames,    // Names and shapes of the tensors take too many bytes.
    kShards,   // The layout cannot be cut into shards: see `cause`.
    kMemory,   // The largest shard takes more memory than a server has: see `cause`.
    kCut,      // The shards cannot be cut into buckets: see `cause`.
    kBuckets,  // The layout would have too many buckets.
  };
  Kind kind = Kind::kEncoding;
  std::string subject = {};
  // Number of tensors, bytes, elements (for kMemory) or buckets that the layout has.
  int64_t present = 0;
  int64_t allowed = 0;        // maximum of `present`; not set for kMemory
  int64_t largest_shard = 0;  // elements of the largest shard, for kMemory
  absl::Status cause = absl::OkStatus();
  std::vector<params::Encoding::Kind> known = {};  // encodings that the client knows, for kEncoding
  friend bool operator==(const ModelRefusal&, const ModelRefusal&) = default;
};

}  // namespace lodestar::model
