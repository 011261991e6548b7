// SPDX-License-Identifier: Apache-2.0

// Says which elements dropout keeps. This depends only on seed and position. So it is the same on
// every device, for every division of the work, and in the backward pass. Both host and device code
// include this file, so it does not use Abseil.
#pragma once

#include <cstdint>

#include "common/runtime/philox.h"

namespace lodestar::kernels {

// Element i of a tensor uses element first_element + i of the random sequence (key, stream). With
// probability `rate` the element is dropped. Otherwise it is scaled by 1 / (1 - rate). Rate 0 means
// no dropout.
struct DropoutMask {
  double rate = 0.0;
  uint64_t key = 0;
  uint64_t stream = 0;
  int64_t first_element = 0;
};

// Returns the threshold for random words: an element is dropped if its random word is below the
// threshold. `rate` is in [0, 1).
constexpr uint32_t DropoutThreshold(double rate) {
  return static_cast<uint32_t>(rate * 4294967296.0);
}

// Returns the factor for kept elements.
constexpr double DropoutScale(double rate) { return 1.0 / (1.0 - rate); }

// Returns the random words of the elements [4 * block, 4 * block + 4) of the sequence.
constexpr PhiloxWords DropoutWords(const DropoutMask& mask, int64_t block) {
  return PhiloxAt(mask.key, mask.stream, static_cast<uint64_t>(block));
}

// Returns true if element `i` of the tensor is kept.
constexpr bool IsKept(const DropoutMask& mask, int64_t i) {
  const int64_t element = mask.first_element + i;
  return DropoutWords(mask, element / 4).word[element % 4] >= DropoutThreshold(mask.rate);
}

}  // namespace lodestar::kernels
