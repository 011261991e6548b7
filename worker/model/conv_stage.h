// SPDX-License-Identifier: Apache-2.0

// ConvStage is one stage of the CNN: 3x3 convolution, ReLU and 2x2 max pooling, with parameters and
// saved activations.
#pragma once

#include <cstdint>

#include "kernels/device.h"
#include "worker/model/activation_arena.h"
#include "worker/model/parameter_arena.h"

namespace lodestar::model {

class ConvStage {
 public:
  // `weight` is [out, in, 3, 3] and `bias` is [out]. `shape` is the shape for the largest
  // micro-batch.
  ConvStage(Parameter weight, Parameter bias, const kernels::ConvShape& shape);

  void Plan(kernels::DType dtype, ActivationArena* arena);

  // Returns the number of outputs per sample.
  int64_t output_elements() const;
  const kernels::ConvShape& max_shape() const { return shape_; }
  // The output [samples, out, height / 2, width / 2], and its gradient, which the next stage sets.
  kernels::Buf y() const { return pooled_; }
  kernels::Buf dy() const { return dpooled_; }

  void Forward(kernels::Device* device, kernels::Buf x, kernels::Buf workspace,
               int64_t samples) const;
  // Computes the gradients of the stage from dy(). Sets dx to the gradient to x, unless dx is
  // empty.
  void Backward(kernels::Device* device, kernels::Buf dx, kernels::Buf x, kernels::Buf workspace,
                int64_t samples, kernels::Accumulate weights) const;

 private:
  kernels::ConvShape ShapeFor(int64_t samples) const;

  Parameter weight_;
  Parameter bias_;
  kernels::ConvShape shape_;
  kernels::Buf convolved_;
  kernels::Buf dconvolved_;
  kernels::Buf pooled_;
  kernels::Buf dpooled_;
  kernels::Buf argmax_;
};

}  // namespace lodestar::model
