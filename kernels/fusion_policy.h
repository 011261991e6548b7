// Whether biases, activations and sums become part of matrix products, where a device can do both.
#pragma once

#include <cstdint>

namespace lodestar {

// kMeasure: what is faster at the first use of a shape; two runs may choose differently, and then
// differ in the last bits.
enum class FusionPolicy : uint8_t { kMeasure, kNever, kAlways };

}  // namespace lodestar
