// SPDX-License-Identifier: Apache-2.0

// Computes long parts of a CRC-32C by carry-less multiplication (Gopal et al. 2009, "Fast CRC
// Computation for Generic Polynomials Using PCLMULQDQ Instruction"). The code is compiled once per
// instruction set, and crc32c.cc chooses one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lodestar::crc32c {

// Factors for the two halves of a lane of 128 bits. Multiplying a lane by them moves it forward by
// step_bytes of data.
struct FoldFactors {
  uint64_t low;
  uint64_t high;
};

// Reduces data to a block of step_bytes at `folded`. The checksum of this block, beginning with
// state 0, equals the checksum of `data`, beginning with `state`. `size` is a positive multiple of
// step_bytes. If `copy` is not null, also copies the bytes there, and past the caches if `streams`.
// The result is of the copied bytes, even if another thread or process changes `data` meanwhile.
using Fold = void (*)(uint32_t state, FoldFactors factors, const uint8_t* data, size_t size,
                      uint8_t* copy, bool streams, uint8_t* folded);

struct Folding {
  const char* name;
  Fold fold;
  size_t step_bytes;
};
inline constexpr size_t kMostStepBytes = 256;
// Required alignment in bytes of `copy` if `streams`.
inline constexpr size_t kStreamAlignment = 64;

// The name of each namespace is the instruction sets that the folding needs.
namespace avx512_vpclmulqdq {
extern const Folding kFolding;
}
namespace avx2_vpclmulqdq {
extern const Folding kFolding;
}
namespace pclmulqdq {
extern const Folding kFolding;
}

// Returns the folding at `index` among those that this processor supports, widest first. Returns
// null if there are not so many.
const Folding* FoldingAt(int index);

// Returns the result of Crc32cCopy(), or of Crc32c() if `destination` is null, computed with
// `folding`.
uint32_t Crc32cBy(const Folding& folding, void* destination, const void* source, size_t size,
                  uint32_t seed, bool streams);

}  // namespace lodestar::crc32c
