// SPDX-License-Identifier: Apache-2.0

// Checks the arguments of Device's methods, for all implementations of Device. A failed check is a
// bug of the caller, not bad input.
#pragma once

#include <cstdint>

#include "common/params/encoding.h"
#include "common/runtime/check.h"
#include "kernels/device.h"

namespace lodestar::kernels {

// Checks that `buf` holds at least `num_elements` of `dtype`.
inline void CheckBuf(const Buf& buf, DType dtype, int64_t num_elements) {
  LODESTAR_CHECK(num_elements >= 0);
  LODESTAR_CHECK(buf.data != nullptr || num_elements == 0);
  LODESTAR_CHECK(buf.dtype == dtype);
  LODESTAR_CHECK(buf.num_elements >= num_elements);
}

// Does the same as CheckBuf(), but also accepts an empty `buf`.
inline void CheckOptionalBuf(const Buf& buf, DType dtype, int64_t num_elements) {
  if (buf) CheckBuf(buf, dtype, num_elements);
}

// Checks the arguments that Encode() and UpdateResidual() have in common.
inline void CheckEncoding(params::Encoding encoding, const void* encoded, const Buf& values) {
  LODESTAR_CHECK(encoding != params::Encoding::kFp32) << "fp32 needs no encoding";
  LODESTAR_CHECK(reinterpret_cast<uintptr_t>(encoded) % 4 == 0);
  CheckBuf(values, DType::kF32, values.num_elements);
}

// Checks that all matrices of the batch lie inside their buffers. a and b must have `dtype`; c must
// have `dtype` or its StatisticsDType().
inline void CheckMatMul(const MatMulShape& s, const Buf& c, const Buf& a, const Buf& b,
                        DType dtype) {
  LODESTAR_CHECK(s.m >= 0 && s.n >= 0 && s.k >= 0 && s.batch >= 0);
  if (s.m == 0 || s.n == 0 || s.batch == 0) return;
  const auto elements = [&](int64_t rows, int64_t columns, int64_t row_stride, int64_t stride) {
    if (rows == 0 || columns == 0) return int64_t{0};
    const int64_t rs = row_stride != 0 ? row_stride : columns;
    LODESTAR_CHECK(rs >= columns);
    return (s.batch - 1) * stride + (rows - 1) * rs + columns;
  };
  LODESTAR_CHECK(c.dtype == dtype || c.dtype == StatisticsDType(dtype));
  CheckBuf(c, c.dtype, elements(s.m, s.n, s.ldc, s.stride_c));
  CheckBuf(a, dtype,
           elements(s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k, s.lda, s.stride_a));
  CheckBuf(b, dtype,
           elements(s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n, s.ldb, s.stride_b));
}

}  // namespace lodestar::kernels
