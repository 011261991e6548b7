// What operations are told beside their buffers: shapes, options, and steps of optimizers. Free of
// Abseil: kernels include it.
#pragma once

#include <cstdint>

#include "kernels/dropout_mask.h"

namespace lodestar {

// What a fully connected layer can fuse.
enum class Activation : uint8_t { kNone, kRelu, kGeluTanh };

// How the weights of a fully connected layer lie.
enum class WeightOrder : uint8_t {
  kOutIn,  // [out, in], as torch.nn.Linear has them
  kInOut,  // [in, out], as the Conv1D of Hugging Face's GPT-2
};

// C[m,n] (+)= alpha * op(A) op(B), repeated `batch` times at the given strides (elements). op
// transposes if asked.
struct MatMulShape {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;  // row strides in elements; 0: dense
  double alpha = 1.0;
};

// Kernel 3x3, stride 1, padding 1.
struct ConvShape {
  int64_t samples = 0, in_channels = 0, height = 0, width = 0, out_channels = 0;
  // Of one sample's patches.
  int64_t workspace_elements() const { return in_channels * 9 * height * width; }
};

struct AttentionShape {
  int64_t batch = 0, tokens = 0, heads = 0, head_width = 0;
  // Of the probabilities, which are [batch, heads, tokens (queries), tokens (keys)]; also those of
  // keys that a query does not see are counted.
  DropoutMask dropout = {};
};

// How int8 and int4 round to a neighbouring code.
struct Rounding {
  enum class Kind : uint8_t {
    // Up with the probability of what rounding down would lose: right on average.
    kStochastic,
    // To the nearer one, halves down: the smaller error, for what error feedback makes good.
    kToNearest,
  };
  Kind kind = Kind::kStochastic;
  // Where stochastic rounding takes its random numbers from. Element i of a vector uses word
  // (first_element + i) % 4 of Philox(key, stream, (first_element + i) / 4), so it is rounded the
  // same way again however its vector is cut.
  uint64_t key = 0;
  uint64_t stream = 0;
  int64_t first_element = 0;
};

// The word that rounds to the nearer code, in place of a random one.
inline constexpr uint32_t kWordOfTheMiddle = uint32_t{1} << 31;

struct AdamWStep {
  double learning_rate, beta1, beta2, epsilon, weight_decay;
  double gradient_scale = 1.0;
  int64_t step = 1;  // first update is 1: bias correction
};

struct MomentumStep {
  double learning_rate, momentum, weight_decay;
  double gradient_scale = 1.0;
  bool nesterov = false;
};

}  // namespace lodestar
