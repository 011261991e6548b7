// SPDX-License-Identifier: Apache-2.0

// SampleOrder is the order of training samples: a keyed permutation per epoch, or the order of
// their numbers. It is stateless, takes O(1) memory, and is the same for any number of workers.
// Position p of the order is sample Permute(p mod n) of epoch p / n, if there are n samples.
#pragma once

#include <cstdint>

#include "worker/data/dataset.h"

namespace lodestar::data {

class SampleOrder {
 public:
  // If `is_shuffled` is false, nothing is permuted. Requires: num_samples >= 1.
  SampleOrder(uint64_t seed, int64_t num_samples, bool is_shuffled = true);
  // Returns the sample at `position` >= 0 of the order. Thread-safe.
  SampleRef At(int64_t position) const;

 private:
  uint64_t seed_;
  int64_t num_samples_;
  bool is_shuffled_;
};

}  // namespace lodestar::data
