// ContributionSamples keeps some of the elements of each contribution to one bucket. They show in
// which direction the contribution goes, compared with the others of its round. The class is pure.
//
// The samples are whole blocks of kSampledBlock elements, evenly over the bucket. Which blocks are
// sampled moves with the round. The positions are no secret: a worker that knows them can send
// something else there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/params/encoding.h"
#include "common/runtime/ids.h"

namespace lodestar::shard {

// A DirectionPart says how a worker's part of a bucket lies to that of the others. It has sums over
// the sample. Each contribution is made of length 1 before, so that a long one does not hide the
// others.
struct DirectionPart {
  WorkerId worker;
  Incarnation incarnation;
  double product = 0.0;     // of its own with the sum of the others
  double own_square = 0.0;  // of its own: 1, or 0 of nothing
  double others_square = 0.0;
};

class ContributionSamples {
 public:
  static constexpr int64_t kSampledBlock = 256;

  // Further ones of a round are not looked at.
  static constexpr size_t kMaxWorkers = 256;

  // Samples about `max_elements` of the `num_elements` of the bucket, and at least one block. If
  // max_elements is 0, none is sampled.
  ContributionSamples(int64_t num_elements, int64_t max_elements);

  // Adds the sample of a contribution to the open round. `encoded` has all elements of the bucket.
  // What is looked at is scale * (encoded - base), or scale * encoded where `base` is null.
  void Add(WorkerId worker, Incarnation incarnation, Round round, Encoding encoding,
           const std::byte* encoded, float scale, const float* base);
  // Returns one part per worker, if two or more workers came. The next round begins.
  std::vector<DirectionPart> EndRound();

 private:
  struct Sample {
    WorkerId worker;
    Incarnation incarnation;
    std::vector<float> elements = {};
  };

  const int64_t num_elements_;
  const bool is_looked_at_;
  const int64_t stride_;  // in blocks, from one sampled block to the next
  std::vector<Sample> samples_;
};

}  // namespace lodestar::shard
