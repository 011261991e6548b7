// SPDX-License-Identifier: Apache-2.0

// NormLayer adds the output of the previous branch to the residual stream and computes the layer
// norm of the sum, in one kernel.
#pragma once

#include <cstdint>

#include "kernels/device.h"
#include "worker/model/activation_arena.h"
#include "worker/model/parameter_arena.h"

namespace lodestar::model {

class NormLayer {
 public:
  NormLayer(Parameter gamma, Parameter beta, int64_t width);

  void Plan(int64_t max_rows, kernels::DType dtype, ActivationArena* arena);
  // PlanSum() plans the memory for sum(). PlanOutput() plans the memory for the values computed
  // from sum(). Plan() does both.
  void PlanSum(int64_t max_rows, kernels::DType dtype, ActivationArena* arena);
  void PlanOutput(int64_t max_rows, kernels::DType dtype, ActivationArena* arena);

  // sum() is the residual stream after the addition of the branch. y() is its norm.
  kernels::Buf sum() const { return sum_; }
  kernels::Buf y() const { return y_; }

  // Computes sum() = residual + branch and y() = norm(sum()). An empty `branch` means zero.
  void Forward(kernels::Device* device, kernels::Buf residual, kernels::Buf branch,
               int64_t rows) const;
  // Computes y() again from sum(), which must have been kept.
  void Recompute(kernels::Device* device, int64_t rows) const;
  // Computes the gradient to sum(). `input` says whether Backward() overwrites dresidual with this
  // gradient or adds it to dresidual.
  void Backward(kernels::Device* device, kernels::Buf dresidual, kernels::Buf dy, int64_t rows,
                kernels::Accumulate input, kernels::Accumulate weights) const;

 private:
  Parameter gamma_;
  Parameter beta_;
  int64_t width_;
  kernels::Buf sum_;
  kernels::Buf y_;
  kernels::Buf mean_;
  kernels::Buf rstd_;
};

}  // namespace lodestar::model
