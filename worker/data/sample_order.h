// The order of training samples: a keyed permutation per epoch, stateless and O(1) in memory, the
// same for any number of workers. Position p of a data set's cursor is sample Permute(p mod n) of
// epoch p / n.
#pragma once

#include <cstdint>

#include "worker/data/dataset.h"

namespace lodestar::data {

class SampleOrder {
 public:
  // num_samples >= 1.
  SampleOrder(uint64_t seed, int64_t num_samples);
  // The sample at `position` >= 0 of the cursor. Thread-safe.
  SampleRef At(int64_t position) const;

 private:
  uint64_t seed_;
  int64_t num_samples_;
};

}  // namespace lodestar::data
