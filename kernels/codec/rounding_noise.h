// Where stochastic rounding takes its random numbers from. Free of Abseil: kernels include it.
#pragma once

#include <cstdint>

namespace lodestar {

// Element i of a vector uses word (first_element + i) % 4 of Philox(key, stream, (first_element +
// i) / 4), so it is rounded the same way again however its vector is cut.
struct RoundingNoise {
  uint64_t key = 0;
  uint64_t stream = 0;
  int64_t first_element = 0;
};

}  // namespace lodestar
