// Some of the elements of each contribution to one bucket, to see in which direction it goes beside
// the others of its round. Pure.
//
// Whole blocks of kSampledBlock elements, evenly over the bucket; which, moves with the round. The
// positions are no secret: whoever knows them can send something else there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/encoding.h"
#include "common/ids.h"

namespace lodestar {

// How a worker's part of a bucket lies to that of the others: sums over the sample, each
// contribution made of length 1 before, so that a long one does not hide the others.
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

  // About `max_elements` of the `num_elements` of the bucket, at least one block; 0: none.
  ContributionSamples(int64_t num_elements, int64_t max_elements);

  // Of the open round. `encoded` are all elements of the bucket; what is looked at is
  // scale * (encoded - base), or scale * encoded where `base` is null.
  void Add(WorkerId worker, Incarnation incarnation, Round round, Encoding encoding,
           const std::byte* encoded, float scale, const float* base);
  // One per worker, where two or more came; the next round begins.
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

}  // namespace lodestar
