// The activation functions that a fully connected layer can fuse.
#pragma once

#include <cstdint>

namespace lodestar {

enum class Activation : uint8_t { kNone, kRelu, kGeluTanh };

}  // namespace lodestar
