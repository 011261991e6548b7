// Layer norm of a residual stream, fused with the addition of the branch that ends before it.
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
  // The two parts of it: sum(), and what follows from it.
  void PlanSum(int64_t max_rows, kernels::DType dtype, ActivationArena* arena);
  void PlanOutput(int64_t max_rows, kernels::DType dtype, ActivationArena* arena);

  // The stream after the addition, and its norm.
  kernels::Buf sum() const { return sum_; }
  kernels::Buf y() const { return y_; }

  // sum() = residual + branch (empty: none), y() = norm(sum()).
  void Forward(kernels::Device* device, kernels::Buf residual, kernels::Buf branch,
               int64_t rows) const;
  // From sum() again, which is kept.
  void Recompute(kernels::Device* device, int64_t rows) const;
  // dresidual (set or added as `input` says) = gradient to sum().
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
