// SPDX-License-Identifier: Apache-2.0

#include "worker/model/conv_stage.h"

namespace lodestar::model {

ConvStage::ConvStage(Parameter weight, Parameter bias, const kernels::ConvShape& shape)
    : weight_(weight), bias_(bias), shape_(shape) {}

int64_t ConvStage::output_elements() const {
  return shape_.out_channels * (shape_.height / 2) * (shape_.width / 2);
}

void ConvStage::Plan(kernels::DType dtype, ActivationArena* arena) {
  const int64_t convolved = shape_.samples * shape_.out_channels * shape_.height * shape_.width;
  const int64_t pooled = shape_.samples * output_elements();
  arena->Plan(&convolved_, convolved, dtype);
  arena->Plan(&dconvolved_, convolved, dtype);
  arena->Plan(&pooled_, pooled, dtype);
  arena->Plan(&dpooled_, pooled, dtype);
  arena->Plan(&argmax_, pooled, kernels::DType::kU8);
}

kernels::ConvShape ConvStage::ShapeFor(int64_t samples) const {
  kernels::ConvShape shape = shape_;
  shape.samples = samples;
  return shape;
}

void ConvStage::Forward(kernels::Device* device, kernels::Buf x, kernels::Buf workspace,
                        int64_t samples) const {
  device->ConvReluForward(convolved_, x, weight_.value, bias_.value, workspace, ShapeFor(samples));
  device->MaxPoolForward(pooled_, argmax_, convolved_, samples * shape_.out_channels, shape_.height,
                         shape_.width);
}

void ConvStage::Backward(kernels::Device* device, kernels::Buf dx, kernels::Buf x,
                         kernels::Buf workspace, int64_t samples,
                         kernels::Accumulate weights) const {
  device->MaxPoolBackward(dconvolved_, dpooled_, argmax_, samples * shape_.out_channels,
                          shape_.height, shape_.width);
  device->ConvReluBackward(dx, weight_.gradient, bias_.gradient, dconvolved_, convolved_, x,
                           weight_.value, workspace, ShapeFor(samples), weights);
}

}  // namespace lodestar::model
