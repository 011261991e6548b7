// Codec: fp32 vectors to the bytes of an encoding and back. Pure; the bytes depend on the arguments
// only, not on the machine. Format: common/encoding.h.
//
// A finite element stays finite: what is beyond the range of the encoding becomes its largest
// value. NaN stays NaN and Inf stays Inf, but a block of int8 with either is NaN throughout.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/encoding.h"

namespace lodestar {

// Where stochastic rounding takes its random numbers from. Element i of a vector uses word
// (first_element + i) % 4 of Philox(key, stream, (first_element + i) / 4), so it is rounded the
// same way again however its vector is cut.
struct RoundingNoise {
  uint64_t key = 0;
  uint64_t stream = 0;
  int64_t first_element = 0;
};

class Codec {
 public:
  virtual ~Codec() = default;

  virtual Encoding encoding() const = 0;
  // Writes EncodedBytes(encoding(), n) bytes, which may lie anywhere.
  virtual void Encode(const float* values, int64_t n, const RoundingNoise& noise,
                      std::byte* encoded) const = 0;
  virtual void Decode(const std::byte* encoded, int64_t n, float* values) const = 0;
  // True only if all elements are finite; false if one may not be. Does not decode them.
  virtual bool IsSurelyFinite(const std::byte* encoded, int64_t n) const = 0;
};

// The only place that chooses a codec.
const Codec& CodecOf(Encoding encoding);

}  // namespace lodestar
