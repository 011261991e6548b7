// SPDX-License-Identifier: Apache-2.0

// Defines views of device memory and the types of their elements. Does not use Abseil, because CUDA
// kernels include this file.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lodestar::kernels {

enum class DType : uint8_t { kF32, kBf16, kF16, kF64, kI32, kU8 };

constexpr size_t DTypeBytes(DType dtype) {
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

// Returns the type of values that need more digits than a narrow compute type has. These are means,
// deviations, log-sum-exps, losses, master weights, optimizer states and gradients of parameters.
constexpr DType StatisticsDType(DType compute) {
  return compute == DType::kF64 ? DType::kF64 : DType::kF32;
}

// Non-owning view of device memory.
struct Buf {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t num_elements = 0;

  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
  // Returns a view of elements [begin, begin + count).
  Buf Slice(int64_t begin, int64_t count) const {
    return Buf{static_cast<char*>(data) + begin * static_cast<int64_t>(DTypeBytes(dtype)), dtype,
               count};
  }
  explicit operator bool() const { return data != nullptr; }
};

enum class Accumulate : uint8_t { kSet, kAdd };

}  // namespace lodestar::kernels
