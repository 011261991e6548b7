// SPDX-License-Identifier: Apache-2.0

// ContributionSamples keeps a sample of the elements of each contribution to one bucket. The
// samples show in which direction a contribution goes, compared with the other contributions of its
// round. The class does no I/O and has no lock.
//
// The samples are whole blocks of kSampledBlock elements, spread evenly over the bucket. Each round
// samples other blocks. A worker can compute which blocks these are. So a dishonest worker can send
// harmless values in the sampled blocks only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/params/encoding.h"
#include "common/runtime/ids.h"

namespace lodestar::shard {

// A DirectionPart compares one worker's contribution to a bucket with the contributions of the
// other workers. Its members are sums over the sampled elements. Each contribution is first scaled
// to length 1. So a long contribution does not hide the others.
struct DirectionPart {
  WorkerId worker;
  Incarnation incarnation;
  double product = 0.0;     // product of the worker's part with the sum of the other parts
  double own_square = 0.0;  // square of the worker's part: 1, or 0 if the part is zero
  double others_square = 0.0;
};

class ContributionSamples {
 public:
  static constexpr int64_t kSampledBlock = 256;

  // Maximum number of workers that are sampled in a round.
  static constexpr size_t kMaxWorkers = 256;

  // Samples about `max_elements` of the `num_elements` of the bucket, and at least one block. If
  // max_elements is 0, nothing is sampled.
  ContributionSamples(int64_t num_elements, int64_t max_elements);

  // Adds the sample of a contribution to the open round. `encoded` has all elements of the bucket.
  // The sampled value is scale * (encoded - base), or scale * encoded if `base` is null.
  void Add(WorkerId worker, Incarnation incarnation, Round round, params::Encoding encoding,
           const std::byte* encoded, float scale, const float* base);
  // Ends the round. Returns one part per worker, or nothing if fewer than two workers contributed.
  std::vector<DirectionPart> EndRound();

 private:
  struct Sample {
    WorkerId worker;
    Incarnation incarnation;
    std::vector<float> elements = {};
  };

  const int64_t num_elements_;
  const bool is_looked_at_;
  const int64_t stride_;  // blocks from one sampled block to the next
  std::vector<Sample> samples_;
};

}  // namespace lodestar::shard
