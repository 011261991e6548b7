// The inner loops of the CPU kernels: single-threaded, no allocation, compiled once per instruction
// set and chosen at run time. All pointers are fp32 without alignment requirement; all matrices
// row-major and dense unless a stride is given. Results depend on the arguments only, never on
// alignment.
#pragma once

#include <cstdint>

#include "kernels/operation_arguments.h"

namespace lodestar::simd {

// Row-major, row strides in elements.
struct GemmShape {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;
};

// Elements of scratch memory that gemm wants; best 64-byte aligned.
inline constexpr int64_t kGemmPackElements = 192 * (512 + 96);

// How many values trimmed_mean takes of an element.
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

  // Elementwise, of vectors [n]. Cutting a vector anywhere gives the same bits. Outputs may be
  // inputs. A long output of write_scaled, adamw or momentum that is no input does not pass through
  // the caches; these three return whether all that they have written is finite (and, of adamw and
  // momentum, the sum of an element and its state, too).
  void (*add_scaled)(float* y, const float* x, float a, int64_t n);    // y += a * x
  void (*scale)(float* y, const float* x, float a, int64_t n);         // y = a * x
  bool (*write_scaled)(float* y, const float* x, float a, int64_t n);  // same, see above
  void (*copy_past_caches)(float* y, const float* x, int64_t n);  // y = x, which overlaps nothing
  // z = a * (x - y), which overlaps neither: past the caches too, and seen by other threads after
  // an sfence of the caller.
  void (*difference_past_caches)(float* z, const float* x, const float* y, float a, int64_t n);
  void (*subtract)(float* z, const float* x, const float* y, int64_t n);  // z = x - y
  void (*add)(float* z, const float* x, const float* y, int64_t n);       // z = x + y
  // w_out, m, v from w_in, m, v, g.
  bool (*adamw)(float* w_out, const float* w_in, float* m, float* v, const float* g, int64_t n,
                const AdamWFactors& f);
  // `state` may be null: plain SGD.
  bool (*momentum)(float* w_out, const float* w_in, float* state, const float* g, int64_t n,
                   const MomentumFactors& f);

  // out[i] = the mean of values[0 .. count)[i] without the `trim` lowest and the `trim` highest of
  // them, weighted with weights [count], all above 0 (null: all alike); 2 * trim < count <=
  // kMaxTrimmedValues, and no value is NaN. Elementwise as those above; out may be one of the
  // values.
  void (*trimmed_mean)(float* out, const float* const* values, const float* weights, int count,
                       int trim, int64_t n);

  // Sum of squares in f64 over 16 interleaved lanes, the same on every instruction set.
  double (*sum_of_squares)(const float* x, int64_t n);
  double (*dot_product)(const float* x, const float* y, int64_t n);  // in the same way
  // Whether every |x[i]| < limit; not for NaN. `limit` is above 0, and may be infinite.
  bool (*all_below)(const float* x, float limit, int64_t n);

  // The same, and the sum of squares, in blocks of fp32 that are added in f64: as fast as the
  // memory, and the same on every instruction set. Of no meaning if a square is beyond fp32.
  bool (*all_below_with_square_sum)(const float* x, float limit, int64_t n, double* square_sum);

  // c [m, n] = alpha * op(a) op(b), or c += with `add`; op(a) [m, k], op(b) [k, n]. pack
  // [kGemmPackElements].
  void (*gemm)(const GemmShape& shape, float alpha, const float* a, const float* b, float* c,
               bool add, float* pack);

  // y [rows, columns] += bias [columns] (may be null), kept in pre [rows, columns] (may be null),
  // then y = activation(y).
  void (*bias_activation)(float* y, float* pre, const float* bias, int64_t rows, int64_t columns,
                          kernels::Activation activation);
  // dy [rows, columns] *= activation'(pre [rows, columns]); column_sums [columns] (may be null) is
  // set to the sums of the new dy over rows.
  void (*activation_backward)(float* dy, const float* pre, float* column_sums, int64_t rows,
                              int64_t columns, kernels::Activation activation);

  // See Device::ResidualNormForward. y, sum, a, b [rows, width]; mean, rstd [rows]; gamma, beta
  // [width]. b may be null.
  void (*norm_forward)(float* y, float* sum, float* mean, float* rstd, const float* a,
                       const float* b, const float* gamma, const float* beta, int64_t rows,
                       int64_t width);
  // The same shapes. dx is set or added to; dgamma and dbeta [width] are set to the sums over these
  // rows.
  void (*norm_backward)(float* dx, float* dgamma, float* dbeta, const float* dy, const float* sum,
                        const float* mean, const float* rstd, const float* gamma, int64_t rows,
                        int64_t width, bool add_to_dx);

  // scores [rows, stride]: row r becomes softmax(scale * scores[r, 0 .. first + r]), then zero up
  // to `columns`, rounded up to whole vectors: stride is a multiple of 16. log_sum_exp [rows] is
  // the logarithm of its sum.
  void (*causal_softmax)(float* scores, float* log_sum_exp, int64_t rows, int64_t first,
                         int64_t columns, int64_t stride, float scale);
  // From scores [rows, stride] and log_sum_exp [rows]: p = exp(scale * scores - log_sum_exp),
  // written over scores, and ds = scale * p * (dp - delta), written over dp [rows, stride]; delta
  // [rows]. Zero beyond first + r as above.
  void (*causal_softmax_backward)(float* scores, float* dp, const float* log_sum_exp,
                                  const float* delta, int64_t rows, int64_t first, int64_t columns,
                                  int64_t stride, float scale);
  // sum of a[i] * b[i]
  float (*dot)(const float* a, const float* b, int64_t n);

  // One row of Device::SoftmaxCrossEntropy, logits [classes]. Returns the loss; *correct is 0 or 1.
  float (*cross_entropy)(float* logits, int32_t target, int64_t classes, float scale,
                         int32_t* correct);
};

// The widest set that this processor and its operating system support.
const Loops& BestLoops();
// Every set that runs here, for tests and benchmarks; `index` from 0 until it returns null.
const Loops* SupportedLoops(int index);

}  // namespace lodestar::simd
