// SPDX-License-Identifier: Apache-2.0

// Defines those arguments of operations that are not buffers: shapes, options, and the parameters
// of an optimizer's step. Does not use Abseil, because CUDA kernels include this file.
#pragma once

#include <cstdint>

#include "kernels/dropout_mask.h"

namespace lodestar::kernels {

// The activations that can be fused into a fully connected layer.
enum class Activation : uint8_t { kNone, kRelu, kGeluTanh };

// The order of the weights of a fully connected layer in memory.
enum class WeightOrder : uint8_t {
  kOutIn,  // [out, in], as in torch.nn.Linear
  kInOut,  // [in, out], as in Conv1D of Hugging Face's GPT-2
};

// Describes a matrix product: C[m,n] = alpha * op(A) op(B), or C += alpha * op(A) op(B). op()
// transposes A if transpose_a is set, and B if transpose_b is set. The product is computed `batch`
// times. The matrices of the next product begin stride_a, stride_b and stride_c elements later.
struct MatMulShape {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;  // row strides in elements; 0 means that rows are dense
  double alpha = 1.0;
};

// A convolution with a 3x3 kernel, stride 1 and padding 1.
struct ConvShape {
  int64_t samples = 0, in_channels = 0, height = 0, width = 0, out_channels = 0;
  // Returns the number of elements of the patches of one sample. A patch has the 3x3 inputs of one
  // output pixel, of all input channels.
  int64_t workspace_elements() const { return in_channels * 9 * height * width; }
};

struct AttentionShape {
  int64_t batch = 0, tokens = 0, heads = 0, head_width = 0;
  // The mask for the probabilities, which are [batch, heads, tokens (queries), tokens (keys)]. The
  // mask has an element for every query and key, although a query does not see later keys.
  DropoutMask dropout = {};
};

// Says how int8 and int4 round a value between two codes.
struct Rounding {
  enum class Kind : uint8_t {
    // Rounds up or down at random. Rounding up is the more probable, the nearer the upper code is.
    // So the error is zero on average.
    kStochastic,
    // Rounds to the nearer code. A value halfway between two codes is rounded down. The error is
    // smaller than with kStochastic, but not zero on average. Use this if error feedback corrects
    // the error.
    kToNearest,
  };
  Kind kind = Kind::kStochastic;
  // The random numbers of stochastic rounding. Element i of a vector uses word (first_element + i)
  // % 4 of Philox(key, stream, (first_element + i) / 4). So the rounding of an element does not
  // depend on how its vector is divided.
  uint64_t key = 0;
  uint64_t stream = 0;
  int64_t first_element = 0;
};

// With this random word, stochastic rounding rounds to the nearer code.
inline constexpr uint32_t kWordOfTheMiddle = uint32_t{1} << 31;

struct AdamWStep {
  double learning_rate, beta1, beta2, epsilon, weight_decay;
  double gradient_scale = 1.0;
  int64_t step = 1;  // counts updates from 1, for bias correction
};

struct MomentumStep {
  double learning_rate, momentum, weight_decay;
  double gradient_scale = 1.0;
  bool nesterov = false;
};

}  // namespace lodestar::kernels
