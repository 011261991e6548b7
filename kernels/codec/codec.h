// SPDX-License-Identifier: Apache-2.0

// A Codec encodes fp32 vectors to bytes and decodes them. Its functions have no state. The bytes
// depend only on the arguments, not on the machine. Format: common/params/encoding.h.
//
// A finite element stays finite: a value beyond the range of the encoding becomes the largest value
// of that encoding. NaN stays NaN and Inf stays Inf, except in int8, int4 and top-k: there a block
// that contains NaN or Inf decodes to NaN throughout.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/params/encoding.h"
#include "kernels/operation_arguments.h"

namespace lodestar::codec {

class Codec {
 public:
  virtual ~Codec() = default;

  virtual params::Encoding encoding() const = 0;
  // Writes EncodedBytes(encoding(), n) bytes to `encoded`, which needs no alignment.
  virtual void Encode(const float* values, int64_t n, const kernels::Rounding& rounding,
                      std::byte* encoded) const = 0;
  virtual void Decode(const std::byte* encoded, int64_t n, float* values) const = 0;
  // Returns true if every magnitude is certainly below `limit`. Returns false if a magnitude may
  // not be below it. Does not decode the elements. `limit` is above 0 and may be infinite.
  virtual bool IsSurelyBelow(const std::byte* encoded, float limit, int64_t n) const = 0;
};

// Returns the codec of an encoding. All other code must use this function to choose a codec.
const Codec& CodecOf(params::Encoding encoding);

}  // namespace lodestar::codec
