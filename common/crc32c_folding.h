// Long stretches of a CRC-32C by carry-less multiplication (Gopal et al. 2009, "Fast CRC
// Computation for Generic Polynomials Using PCLMULQDQ Instruction"): compiled once per instruction
// set, chosen by crc32c.cc.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lodestar::crc32c {

// What moves each half of a lane of 128 bits one step further.
struct FoldFactors {
  uint64_t low;
  uint64_t high;
};

// A step is how many bytes are folded onto the next ones at once. `size` bytes, a positive multiple
// of it, become as many as it has, `folded`: these leave the same remainder from state 0 as those
// do from `state`. With a `copy` the bytes also go there, past the caches if it `streams`, and what
// is folded is what was written there, whoever changes `data` meanwhile.
using Fold = void (*)(uint32_t state, FoldFactors factors, const uint8_t* data, size_t size,
                      uint8_t* copy, bool streams, uint8_t* folded);

struct Folding {
  const char* name;
  Fold fold;
  size_t step_bytes;
};
inline constexpr size_t kMostStepBytes = 256;
// Of a copy that streams.
inline constexpr size_t kStreamAlignment = 64;

// Each needs the instructions that it is named for.
namespace avx512_vpclmulqdq {
extern const Folding kFolding;
}
namespace avx2_vpclmulqdq {
extern const Folding kFolding;
}
namespace pclmulqdq {
extern const Folding kFolding;
}

// Of those that this processor has, widest first; null from their number on.
const Folding* FoldingAt(int index);

// Crc32cCopy(), or Crc32c() without a destination, by one of them.
uint32_t Crc32cBy(const Folding& folding, void* destination, const void* source, size_t size,
                  uint32_t seed, bool streams);

}  // namespace lodestar::crc32c
