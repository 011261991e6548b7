// SPDX-License-Identifier: Apache-2.0

#include "worker/model/norm_layer.h"

namespace lodestar::model {

NormLayer::NormLayer(Parameter gamma, Parameter beta, int64_t width)
    : gamma_(gamma), beta_(beta), width_(width) {}

void NormLayer::Plan(int64_t max_rows, kernels::DType dtype, ActivationArena* arena) {
  PlanSum(max_rows, dtype, arena);
  PlanOutput(max_rows, dtype, arena);
}

void NormLayer::PlanSum(int64_t max_rows, kernels::DType dtype, ActivationArena* arena) {
  arena->Plan(&sum_, max_rows * width_, dtype);
}

void NormLayer::PlanOutput(int64_t max_rows, kernels::DType dtype, ActivationArena* arena) {
  arena->Plan(&y_, max_rows * width_, dtype);
  arena->Plan(&mean_, max_rows, kernels::StatisticsDType(dtype));
  arena->Plan(&rstd_, max_rows, kernels::StatisticsDType(dtype));
}

void NormLayer::Forward(kernels::Device* device, kernels::Buf residual, kernels::Buf branch,
                        int64_t rows) const {
  device->ResidualNormForward(y_, sum_, mean_, rstd_, residual, branch, gamma_.value, beta_.value,
                              rows, width_);
}

void NormLayer::Recompute(kernels::Device* device, int64_t rows) const {
  Forward(device, sum_, /*branch=*/{}, rows);
}

void NormLayer::Backward(kernels::Device* device, kernels::Buf dresidual, kernels::Buf dy,
                         int64_t rows, kernels::Accumulate input,
                         kernels::Accumulate weights) const {
  device->NormBackward(dresidual, gamma_.gradient, beta_.gradient, dy, sum_, mean_, rstd_,
                       gamma_.value, rows, width_, input, weights);
}

}  // namespace lodestar::model
