// Codec: fp32 vectors to the bytes of an encoding and back. Pure; the bytes depend on the arguments
// only, not on the machine. Format: common/params/encoding.h.
//
// A finite element stays finite: what is beyond the range of the encoding becomes its largest
// value. NaN stays NaN and Inf stays Inf, but a block of int8, int4 or top-k with either is NaN
// throughout.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/params/encoding.h"
#include "kernels/operation_arguments.h"

namespace lodestar::codec {

class Codec {
 public:
  virtual ~Codec() = default;

  virtual Encoding encoding() const = 0;
  // Writes EncodedBytes(encoding(), n) bytes, which may lie anywhere.
  virtual void Encode(const float* values, int64_t n, const kernels::Rounding& rounding,
                      std::byte* encoded) const = 0;
  virtual void Decode(const std::byte* encoded, int64_t n, float* values) const = 0;
  // True only if every magnitude is below `limit`, which is above 0 and may be infinite; false if
  // one may not be. Does not decode them.
  virtual bool IsSurelyBelow(const std::byte* encoded, float limit, int64_t n) const = 0;
};

// The only place that chooses a codec.
const Codec& CodecOf(Encoding encoding);

}  // namespace lodestar::codec
