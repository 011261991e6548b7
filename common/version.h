// What this build is called, and which wire it speaks.
#pragma once

#include <cstdint>

namespace lodestar {

inline constexpr char kVersion[] = "0.1.0";

// Raised by every change of proto/ that an older peer would misread. Peers refuse another number.
inline constexpr uint32_t kWireVersion = 1;

}  // namespace lodestar
