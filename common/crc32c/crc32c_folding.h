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

// A step is the number of bytes that are folded onto the next ones at once. The `size` bytes at
// `data`, a positive multiple of a step, become the one step of bytes at `folded`. These leave the
// same remainder from state 0 as the bytes at `data` do from `state`. If there is a `copy`, the
// bytes also go there, past the caches if it `streams`. What is folded is then what was written
// there, even if another thread or process changes `data` meanwhile.
using Fold = void (*)(uint32_t state, FoldFactors factors, const uint8_t* data, size_t size,
                      uint8_t* copy, bool streams, uint8_t* folded);

struct Folding {
  const char* name;
  Fold fold;
  size_t step_bytes;
};
inline constexpr size_t kMostStepBytes = 256;
// A copy that streams begins at a multiple of this many bytes.
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

// Returns the folding at `index` among those that this processor has, widest first. The result is
// null from their number on.
const Folding* FoldingAt(int index);

// Crc32cCopy(), or Crc32c() without a destination, by one of them.
uint32_t Crc32cBy(const Folding& folding, void* destination, const void* source, size_t size,
                  uint32_t seed, bool streams);

}  // namespace lodestar::crc32c
