// SPDX-License-Identifier: Apache-2.0

#include "worker/model/linear_layer.h"

namespace lodestar::model {

LinearLayer::LinearLayer(Parameter weight, Parameter bias, int64_t in, int64_t out,
                         kernels::Activation activation, kernels::WeightOrder order)
    : weight_(weight), bias_(bias), in_(in), out_(out), activation_(activation), order_(order) {}

void LinearLayer::Plan(int64_t max_rows, kernels::DType dtype, ActivationArena* arena) {
  PlanOutput(max_rows, dtype, arena);
  PlanPreActivation(max_rows, dtype, arena);
}

void LinearLayer::PlanOutput(int64_t max_rows, kernels::DType dtype, ActivationArena* arena) {
  arena->Plan(&y_, max_rows * out_, dtype);
}

void LinearLayer::PlanPreActivation(int64_t max_rows, kernels::DType dtype,
                                    ActivationArena* arena) {
  if (activation_ != kernels::Activation::kNone)
    arena->Plan(&pre_activation_, max_rows * out_, dtype);
}

void LinearLayer::Forward(kernels::Device* device, kernels::Buf y, kernels::Buf x,
                          int64_t rows) const {
  device->LinearForward(y, pre_activation_, x, weight_.value, bias_.value, rows, in_, out_,
                        activation_, order_);
}

void LinearLayer::Reactivate(kernels::Device* device, int64_t rows) const {
  device->Activate(y_.Slice(0, rows * out_), pre_activation_.Slice(0, rows * out_), activation_);
}

void LinearLayer::Backward(kernels::Device* device, kernels::Buf dx, kernels::Buf dy,
                           kernels::Buf x, int64_t rows, kernels::Accumulate weights) const {
  device->LinearBackward(dx, weight_.gradient, bias_.gradient, dy, pre_activation_, x,
                         weight_.value, rows, in_, out_, activation_, order_, weights);
}

void LinearLayer::BackwardUpTo(const LinearLayer& before, kernels::Device* device, kernels::Buf dx,
                               kernels::Buf dy, int64_t rows, kernels::Accumulate weights) const {
  device->LinearBackward(/*dx=*/{}, weight_.gradient, bias_.gradient, dy, /*pre_activation=*/{},
                         before.y_, weight_.value, rows, in_, out_, activation_, order_, weights);
  device->LinearBackwardInput(dx, before.bias_.gradient, dy, before.pre_activation_, weight_.value,
                              rows, in_, out_, before.activation_, order_, weights);
}

void LinearLayer::BackwardFrom(kernels::Device* device, kernels::Buf dx,
                               kernels::Buf dpre_activation, kernels::Buf x, int64_t rows,
                               kernels::Accumulate weights) const {
  device->LinearBackward(dx, weight_.gradient, /*db=*/{}, dpre_activation, /*pre_activation=*/{}, x,
                         weight_.value, rows, in_, out_, kernels::Activation::kNone, order_,
                         weights);
}

}  // namespace lodestar::model
