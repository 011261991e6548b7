#include "kernels/device.h"

#include <cstdint>

namespace lodestar {

size_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBf16:
    case DType::kF16:
      return 2;
    case DType::kU8:
      return 1;
  }
  return 0;
}

Buf Buf::Slice(int64_t begin, int64_t count) const {
  return Buf{static_cast<char*>(data) + begin * static_cast<int64_t>(DTypeBytes(dtype)), dtype,
             count};
}

}  // namespace lodestar
