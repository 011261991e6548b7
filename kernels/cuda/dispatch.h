// SPDX-License-Identifier: Apache-2.0

// Calls templates with the C++ type that represents a DType on the card.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "common/runtime/check.h"
#include "kernels/buf.h"

namespace lodestar::cuda {

// Calls body.operator()<T>(), where T is float or __nv_bfloat16.
template <typename Body>
void WithComputeType(kernels::DType dtype, Body body) {
  LODESTAR_CHECK(dtype == kernels::DType::kF32 || dtype == kernels::DType::kBf16);
  if (dtype == kernels::DType::kF32) {
    body.template operator()<float>();
  } else {
    body.template operator()<__nv_bfloat16>();
  }
}

// Calls body.operator()<T>(), where T represents any floating DType.
template <typename Body>
void WithFloatingType(kernels::DType dtype, Body body) {
  switch (dtype) {
    case kernels::DType::kF32:
      return body.template operator()<float>();
    case kernels::DType::kBf16:
      return body.template operator()<__nv_bfloat16>();
    case kernels::DType::kF16:
      return body.template operator()<__half>();
    case kernels::DType::kF64:
      return body.template operator()<double>();
    case kernels::DType::kI32:
    case kernels::DType::kU8:
      LODESTAR_CHECK(false) << "a floating type is needed";
  }
}

}  // namespace lodestar::cuda
