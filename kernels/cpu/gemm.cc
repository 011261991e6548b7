#include "kernels/cpu/gemm.h"

#include <cblas.h>

namespace lodestar {

void Gemm(const GemmShape& s, float alpha, const float* a, const float* b, float* c, bool add) {
  cblas_sgemm(CblasRowMajor, s.transpose_a ? CblasTrans : CblasNoTrans,
              s.transpose_b ? CblasTrans : CblasNoTrans, s.m, s.n, s.k, alpha, a, s.lda, b, s.ldb,
              add ? 1.0f : 0.0f, c, s.ldc);
}

}  // namespace lodestar
