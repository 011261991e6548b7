// From a DType to the C++ type of its elements on the card.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "common/runtime/check.h"
#include "kernels/buf.h"

namespace lodestar::cuda {

// Calls body.operator()<T>(), T one of float, __nv_bfloat16.
template <typename Body>
void WithComputeType(DType dtype, Body body) {
  LODESTAR_CHECK(dtype == DType::kF32 || dtype == DType::kBf16);
  if (dtype == DType::kF32) {
    body.template operator()<float>();
  } else {
    body.template operator()<__nv_bfloat16>();
  }
}

// The same with any floating type.
template <typename Body>
void WithFloatingType(DType dtype, Body body) {
  switch (dtype) {
    case DType::kF32:
      return body.template operator()<float>();
    case DType::kBf16:
      return body.template operator()<__nv_bfloat16>();
    case DType::kF16:
      return body.template operator()<__half>();
    case DType::kF64:
      return body.template operator()<double>();
    case DType::kI32:
    case DType::kU8:
      LODESTAR_CHECK(false) << "a floating type is needed";
  }
}

}  // namespace lodestar::cuda
