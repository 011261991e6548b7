// SPDX-License-Identifier: Apache-2.0

// Implements matrix products, fully connected layers and normalisation.
#include <algorithm>

#include "kernels/buffer_checks.h"
#include "kernels/cpu/cpu_device.h"

namespace lodestar::cpu {
namespace {

simd::GemmShape DenseShape(const kernels::MatMulShape& s) {
  return simd::GemmShape{.transpose_a = s.transpose_a,
                         .transpose_b = s.transpose_b,
                         .m = s.m,
                         .n = s.n,
                         .k = s.k,
                         .lda = s.lda != 0 ? s.lda : (s.transpose_a ? s.m : s.k),
                         .ldb = s.ldb != 0 ? s.ldb : (s.transpose_b ? s.k : s.n),
                         .ldc = s.ldc != 0 ? s.ldc : s.n};
}

// Number of rows and of columns of a tile of the matrix product. Each thread gets whole tiles of C.
constexpr int64_t kRowGrain = 12;
constexpr int64_t kColumnGrain = 64;

}  // namespace

void CpuDevice::ParallelGemm(const kernels::MatMulShape& shape, float* c, const float* a,
                             const float* b, kernels::Accumulate accumulate) {
  const simd::GemmShape whole = DenseShape(shape);
  const bool add = accumulate == kernels::Accumulate::kAdd;
  const float alpha = static_cast<float>(shape.alpha);
  const bool by_rows = whole.m >= whole.n;
  // The unit of `cost` is reading or writing one element. This takes as long as eight
  // multiplications.
  const int64_t cost = whole.m * whole.n * whole.k / 8;
  ForRanges(by_rows ? whole.m : whole.n, by_rows ? kRowGrain : kColumnGrain, cost,
            [&](int64_t begin, int64_t end, int64_t lane) {
              simd::GemmShape part = whole;
              if (by_rows) {
                part.m = end - begin;
                Gemm(part, alpha, a + begin * (whole.transpose_a ? 1 : whole.lda), b,
                     c + begin * whole.ldc, add, lane);
              } else {
                part.n = end - begin;
                Gemm(part, alpha, a, b + begin * (whole.transpose_b ? whole.ldb : 1), c + begin,
                     add, lane);
              }
            });
}

void CpuDevice::MatMul(const kernels::MatMulShape& shape, kernels::Buf c, kernels::Buf a,
                       kernels::Buf b, kernels::Accumulate accumulate) {
  kernels::CheckMatMul(shape, c, a, b, kernels::DType::kF32);
  if (shape.m == 0 || shape.n == 0) return;
  if (shape.batch < pool_.num_threads()) {
    for (int64_t i = 0; i < shape.batch; ++i) {
      ParallelGemm(shape, c.as<float>() + i * shape.stride_c, a.as<float>() + i * shape.stride_a,
                   b.as<float>() + i * shape.stride_b, accumulate);
    }
    return;
  }
  ForRanges(shape.batch, 1, shape.batch * shape.m * shape.n * shape.k / 8,
            [&](int64_t begin, int64_t end, int64_t lane) {
              for (int64_t i = begin; i < end; ++i) {
                Gemm(DenseShape(shape), static_cast<float>(shape.alpha),
                     a.as<float>() + i * shape.stride_a, b.as<float>() + i * shape.stride_b,
                     c.as<float>() + i * shape.stride_c, accumulate == kernels::Accumulate::kAdd,
                     lane);
              }
            });
}

void CpuDevice::Activate(kernels::Buf y, kernels::Buf x, kernels::Activation activation) {
  kernels::CheckBuf(x, kernels::DType::kF32, x.num_elements);
  kernels::CheckBuf(y, kernels::DType::kF32, x.num_elements);
  ForRanges(x.num_elements, 16, 8 * x.num_elements, [&](int64_t begin, int64_t end, int64_t) {
    float* part = y.as<float>() + begin;
    if (y.data != x.data) std::copy_n(x.as<float>() + begin, end - begin, part);
    loops_.bias_activation(part, nullptr, nullptr, 1, end - begin, activation);
  });
}

void CpuDevice::LinearForward(kernels::Buf y, kernels::Buf pre_activation, kernels::Buf x,
                              kernels::Buf w, kernels::Buf bias, int64_t rows, int64_t in,
                              int64_t out, kernels::Activation activation,
                              kernels::WeightOrder order) {
  kernels::CheckBuf(y, kernels::DType::kF32, rows * out);
  kernels::CheckOptionalBuf(pre_activation, kernels::DType::kF32, rows * out);
  kernels::CheckBuf(x, kernels::DType::kF32, rows * in);
  kernels::CheckBuf(w, kernels::DType::kF32, out * in);
  kernels::CheckOptionalBuf(bias, kernels::DType::kF32, out);
  const bool keep = pre_activation && activation != kernels::Activation::kNone;
  ForRanges(rows, kRowGrain, rows * in * out / 8, [&](int64_t begin, int64_t end, int64_t lane) {
    float* part = y.as<float>() + begin * out;
    const bool transpose = order == kernels::WeightOrder::kOutIn;
    Gemm({.transpose_b = transpose,
          .m = end - begin,
          .n = out,
          .k = in,
          .lda = in,
          .ldb = transpose ? in : out,
          .ldc = out},
         1.0f, x.as<float>() + begin * in, w.as<float>(), part, false, lane);
    loops_.bias_activation(part, keep ? pre_activation.as<float>() + begin * out : nullptr,
                           bias.as<float>(), end - begin, out, activation);
  });
}

void CpuDevice::LinearBackward(kernels::Buf dx, kernels::Buf dw, kernels::Buf db, kernels::Buf dy,
                               kernels::Buf pre_activation, kernels::Buf x, kernels::Buf w,
                               int64_t rows, int64_t in, int64_t out,
                               kernels::Activation activation, kernels::WeightOrder order,
                               kernels::Accumulate weights) {
  kernels::CheckOptionalBuf(dx, kernels::DType::kF32, rows * in);
  kernels::CheckBuf(dw, kernels::DType::kF32, out * in);
  kernels::CheckOptionalBuf(db, kernels::DType::kF32, out);
  kernels::CheckBuf(dy, kernels::DType::kF32, rows * out);
  kernels::CheckBuf(x, kernels::DType::kF32, rows * in);
  kernels::CheckBuf(w, kernels::DType::kF32, out * in);
  if (activation != kernels::Activation::kNone)
    kernels::CheckBuf(pre_activation, kernels::DType::kF32, rows * out);
  const int64_t cost = rows * in * out / 8;
  const int64_t parts = NumRanges(rows, kRowGrain, cost);
  float* sums = db ? Scratch(parts * out) : nullptr;
  ForRanges(rows, kRowGrain, cost, [&](int64_t begin, int64_t end, int64_t lane) {
    float* g = dy.as<float>() + begin * out;
    loops_.activation_backward(g,
                               activation == kernels::Activation::kNone
                                   ? nullptr
                                   : pre_activation.as<float>() + begin * out,
                               db ? sums + lane * out : nullptr, end - begin, out, activation);
    if (!dx) return;
    const bool transpose = order == kernels::WeightOrder::kInOut;
    Gemm({.transpose_b = transpose,
          .m = end - begin,
          .n = in,
          .k = out,
          .lda = out,
          .ldb = transpose ? out : in,
          .ldc = in},
         1.0f, g, w.as<float>(), dx.as<float>() + begin * in, false, lane);
  });
  if (db) CombineParts(db.as<float>(), sums, rows > 0 ? parts : 0, out, out, weights);
  if (order == kernels::WeightOrder::kOutIn) {
    ParallelGemm({.transpose_a = true, .m = out, .n = in, .k = rows}, dw.as<float>(),
                 dy.as<float>(), x.as<float>(), weights);
  } else {
    ParallelGemm({.transpose_a = true, .m = in, .n = out, .k = rows}, dw.as<float>(), x.as<float>(),
                 dy.as<float>(), weights);
  }
}

void CpuDevice::LinearBackwardInput(kernels::Buf dx, kernels::Buf db, kernels::Buf dy,
                                    kernels::Buf pre_activation, kernels::Buf w, int64_t rows,
                                    int64_t in, int64_t out, kernels::Activation activation,
                                    kernels::WeightOrder order, kernels::Accumulate weights) {
  LODESTAR_CHECK(activation != kernels::Activation::kNone);
  for (const kernels::Buf& buf : {dx, pre_activation})
    kernels::CheckBuf(buf, kernels::DType::kF32, rows * in);
  kernels::CheckOptionalBuf(db, kernels::DType::kF32, in);
  kernels::CheckBuf(dy, kernels::DType::kF32, rows * out);
  kernels::CheckBuf(w, kernels::DType::kF32, out * in);
  const int64_t cost = rows * in * out / 8;
  const int64_t parts = NumRanges(rows, kRowGrain, cost);
  float* sums = db ? Scratch(parts * in) : nullptr;
  ForRanges(rows, kRowGrain, cost, [&](int64_t begin, int64_t end, int64_t lane) {
    float* g = dx.as<float>() + begin * in;
    const bool transpose = order == kernels::WeightOrder::kInOut;
    Gemm({.transpose_b = transpose,
          .m = end - begin,
          .n = in,
          .k = out,
          .lda = out,
          .ldb = transpose ? out : in,
          .ldc = in},
         1.0f, dy.as<float>() + begin * out, w.as<float>(), g, false, lane);
    loops_.activation_backward(g, pre_activation.as<float>() + begin * in,
                               db ? sums + lane * in : nullptr, end - begin, in, activation);
  });
  if (db) CombineParts(db.as<float>(), sums, rows > 0 ? parts : 0, in, in, weights);
}

void CpuDevice::ResidualNormForward(kernels::Buf y, kernels::Buf sum, kernels::Buf mean,
                                    kernels::Buf rstd, kernels::Buf a, kernels::Buf b,
                                    kernels::Buf gamma, kernels::Buf beta, int64_t rows,
                                    int64_t width) {
  for (const kernels::Buf& buf : {y, sum, a})
    kernels::CheckBuf(buf, kernels::DType::kF32, rows * width);
  for (const kernels::Buf& buf : {gamma, beta}) kernels::CheckBuf(buf, kernels::DType::kF32, width);
  for (const kernels::Buf& buf : {mean, rstd}) kernels::CheckBuf(buf, kernels::DType::kF32, rows);
  kernels::CheckOptionalBuf(b, kernels::DType::kF32, rows * width);
  ForRanges(rows, 1, rows * width, [&](int64_t begin, int64_t end, int64_t) {
    const int64_t at = begin * width;
    loops_.norm_forward(y.as<float>() + at, sum.as<float>() + at, mean.as<float>() + begin,
                        rstd.as<float>() + begin, a.as<float>() + at,
                        b ? b.as<float>() + at : nullptr, gamma.as<float>(), beta.as<float>(),
                        end - begin, width);
  });
}

void CpuDevice::NormBackward(kernels::Buf dx, kernels::Buf dgamma, kernels::Buf dbeta,
                             kernels::Buf dy, kernels::Buf sum, kernels::Buf mean,
                             kernels::Buf rstd, kernels::Buf gamma, int64_t rows, int64_t width,
                             kernels::Accumulate input, kernels::Accumulate weights) {
  for (const kernels::Buf& buf : {dx, dy, sum})
    kernels::CheckBuf(buf, kernels::DType::kF32, rows * width);
  for (const kernels::Buf& buf : {dgamma, dbeta, gamma})
    kernels::CheckBuf(buf, kernels::DType::kF32, width);
  for (const kernels::Buf& buf : {mean, rstd}) kernels::CheckBuf(buf, kernels::DType::kF32, rows);
  const int64_t cost = 2 * rows * width;
  const int64_t parts = NumRanges(rows, 1, cost);
  float* sums = Scratch(parts * 2 * width);  // each part has [dgamma | dbeta]
  ForRanges(rows, 1, cost, [&](int64_t begin, int64_t end, int64_t part) {
    const int64_t at = begin * width;
    float* part_sums = sums + part * 2 * width;
    loops_.norm_backward(dx.as<float>() + at, part_sums, part_sums + width, dy.as<float>() + at,
                         sum.as<float>() + at, mean.as<float>() + begin, rstd.as<float>() + begin,
                         gamma.as<float>(), end - begin, width, input == kernels::Accumulate::kAdd);
  });
  CombineParts(dgamma.as<float>(), sums, parts, 2 * width, width, weights);
  CombineParts(dbeta.as<float>(), sums + width, parts, 2 * width, width, weights);
}

}  // namespace lodestar::cpu
