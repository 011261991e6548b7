// SPDX-License-Identifier: Apache-2.0

// Declares the inner loops of the CPU kernels. They run on one thread and do not allocate. They are
// compiled once per instruction set, and the set is chosen at run time. All pointers are fp32 and
// need no alignment. All matrices are row-major, without gaps unless a stride is given. Results
// depend only on the arguments, not on alignment.
#pragma once

#include <cstdint>

#include "kernels/operation_arguments.h"

namespace lodestar::simd {

// Matrices are row-major. Row strides (lda, ldb, ldc) are in elements.
struct GemmShape {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;
};

// Number of elements of scratch memory that gemm needs. It is fastest if the memory is 64-byte
// aligned.
inline constexpr int64_t kGemmPackElements = 192 * (512 + 96);

// Maximum number of values per element for trimmed_mean.
inline constexpr int kMaxTrimmedValues = 32;

struct AdamWFactors {
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float gradient_scale;
  float decay;                     // learning_rate * weight_decay
  float step_size;                 // learning_rate / (1 - beta1^step)
  float inverse_root_correction2;  // 1 / sqrt(1 - beta2^step)
  float epsilon;
};

struct MomentumFactors {
  float momentum, gradient_scale, decay, learning_rate;
  bool nesterov;
};

struct Loops {
  const char* name;  // "avx512", "avx2", "sse2"

  // These loops are elementwise over vectors [n]. If a vector is divided, the bits stay the same.
  // Outputs may be inputs.
  //
  // write_scaled, adamw and momentum write a long output with stores that bypass the caches, unless
  // the output is also an input. They return true if everything that they have written is finite.
  // adamw and momentum also return false if the sum of a new weight and its new state (m + v, or
  // state) is not finite.
  void (*add_scaled)(float* y, const float* x, float a, int64_t n);    // y += a * x
  void (*scale)(float* y, const float* x, float a, int64_t n);         // y = a * x
  bool (*write_scaled)(float* y, const float* x, float a, int64_t n);  // the same; see above
  void (*copy_past_caches)(float* y, const float* x, int64_t n);       // y = x; must not overlap
  // Computes z = a * (x - y) with stores that bypass the caches. z must not overlap x or y. Other
  // threads see z only after the caller has executed an sfence.
  void (*difference_past_caches)(float* z, const float* x, const float* y, float a, int64_t n);
  void (*subtract)(float* z, const float* x, const float* y, int64_t n);  // z = x - y
  void (*add)(float* z, const float* x, const float* y, int64_t n);       // z = x + y
  // Computes w_out, m and v from w_in, m, v and g.
  bool (*adamw)(float* w_out, const float* w_in, float* m, float* v, const float* g, int64_t n,
                const AdamWFactors& f);
  // A null `state` means plain SGD.
  bool (*momentum)(float* w_out, const float* w_in, float* state, const float* g, int64_t n,
                   const MomentumFactors& f);

  // Sets out[i] to a trimmed mean of the `count` values values[0][i], values[1][i] and so on. Drops
  // the `trim` lowest and the `trim` highest of them, and takes the weighted mean of the others.
  // weights [count] are above 0. Null means equal weights. Requires: 2 * trim < count <=
  // kMaxTrimmedValues, and no value is NaN. This loop is elementwise like those above, and out may
  // be one of the vectors of `values`.
  void (*trimmed_mean)(float* out, const float* const* values, const float* weights, int count,
                       int trim, int64_t n);

  // Returns the sum of squares. Adds in f64: element i is added to partial sum i % 16. So the
  // result is the same on every instruction set.
  double (*sum_of_squares)(const float* x, int64_t n);
  double (*dot_product)(const float* x, const float* y, int64_t n);  // added in the same way
  // Returns true if every |x[i]| < limit. NaN gives false. `limit` is above 0 and may be infinite.
  bool (*all_below)(const float* x, float limit, int64_t n);

  // Does the same as all_below, and also computes the sum of squares, at the speed of memory. Adds
  // in fp32 within a block, and adds the sums of blocks in f64. The sum is the same on every
  // instruction set. It is meaningless if a square is too large for fp32.
  bool (*all_below_with_square_sum)(const float* x, float limit, int64_t n, double* square_sum);

  // Computes c [m, n] = alpha * op(a) op(b), or adds the product to c if `add`. op(a) is [m, k],
  // op(b) [k, n], pack [kGemmPackElements].
  void (*gemm)(const GemmShape& shape, float alpha, const float* a, const float* b, float* c,
               bool add, float* pack);

  // Computes y [rows, columns] += bias [columns] (may be null), stores the sums in pre [rows,
  // columns] (may be null), then computes y = activation(y).
  void (*bias_activation)(float* y, float* pre, const float* bias, int64_t rows, int64_t columns,
                          kernels::Activation activation);
  // Computes dy [rows, columns] *= activation'(pre [rows, columns]). column_sums [columns] is set
  // to the sums of the new dy over the rows, unless it is null.
  void (*activation_backward)(float* dy, const float* pre, float* column_sums, int64_t rows,
                              int64_t columns, kernels::Activation activation);

  // See Device::ResidualNormForward. y, sum, a, b [rows, width]; mean, rstd [rows]; gamma, beta
  // [width]. b may be null.
  void (*norm_forward)(float* y, float* sum, float* mean, float* rstd, const float* a,
                       const float* b, const float* gamma, const float* beta, int64_t rows,
                       int64_t width);
  // See Device::NormBackward. The shapes are those of norm_forward. dx is set, or added to if
  // add_to_dx. dgamma and dbeta [width] are set to the sums over the rows of this call.
  void (*norm_backward)(float* dx, float* dgamma, float* dbeta, const float* dy, const float* sum,
                        const float* mean, const float* rstd, const float* gamma, int64_t rows,
                        int64_t width, bool add_to_dx);

  // Computes the softmax of each row r of scores [rows, stride], over elements 0 to first + r.
  // Replaces these elements by softmax(scale * scores), and the later ones by 0, up to `columns`
  // rounded up to whole SIMD vectors. For this, stride must be a multiple of 16. Sets log_sum_exp
  // [rows] to the logarithm of the sum of exp(scale * scores) of each row.
  void (*causal_softmax)(float* scores, float* log_sum_exp, int64_t rows, int64_t first,
                         int64_t columns, int64_t stride, float scale);
  // Does the backward pass of causal_softmax, over the same elements of scores and dp [rows,
  // stride]. Replaces scores by p = exp(scale * scores - log_sum_exp), and dp by scale * p * (dp -
  // delta). Replaces later elements of both by 0, as causal_softmax does. log_sum_exp and delta are
  // [rows].
  void (*causal_softmax_backward)(float* scores, float* dp, const float* log_sum_exp,
                                  const float* delta, int64_t rows, int64_t first, int64_t columns,
                                  int64_t stride, float scale);
  // Returns the sum of a[i] * b[i].
  float (*dot)(const float* a, const float* b, int64_t n);

  // Computes one row of Device::SoftmaxCrossEntropy, with logits [classes]. Returns the loss, and
  // sets *correct to 0 or 1.
  float (*cross_entropy)(float* logits, int32_t target, int64_t classes, float scale,
                         int32_t* correct);
};

// Returns the loops of the widest instruction set that this processor and its operating system
// support.
const Loops& BestLoops();
// For tests and benchmarks. Returns the loops of the `index`-th instruction set that this processor
// supports. Returns null if there are not so many.
const Loops* SupportedLoops(int index);

}  // namespace lodestar::simd
