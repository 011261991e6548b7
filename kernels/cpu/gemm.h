// Single-precision matrix product on the calling thread.
#pragma once

#include <cstdint>

namespace lodestar {

// Row-major, row strides in elements.
struct GemmShape {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;
};

// C = alpha * op(A) op(B), or C += with `add`.
void Gemm(const GemmShape& shape, float alpha, const float* a, const float* b, float* c, bool add);

}  // namespace lodestar
