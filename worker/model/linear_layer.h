// SPDX-License-Identifier: Apache-2.0

// LinearLayer computes y = activation(x w^T + b), or activation(x w + b). It has its parameters and
// saved activations.
#pragma once

#include <cstdint>

#include "kernels/device.h"
#include "worker/model/activation_arena.h"
#include "worker/model/parameter_arena.h"

namespace lodestar::model {

class LinearLayer {
 public:
  // `weight` is [out, in] or [in, out], as `order` says. `bias` is [out].
  LinearLayer(Parameter weight, Parameter bias, int64_t in, int64_t out,
              kernels::Activation activation, kernels::WeightOrder order);

  // Reserves memory for y() of max_rows rows. If the layer has an activation, also reserves memory
  // for the values before the activation. Must not be called for a layer that writes its output to
  // another buffer. Such a layer must have no activation.
  void Plan(int64_t max_rows, kernels::DType dtype, ActivationArena* arena);
  // PlanOutput() reserves only y(), and PlanPreActivation() only the values before the activation.
  void PlanOutput(int64_t max_rows, kernels::DType dtype, ActivationArena* arena);
  void PlanPreActivation(int64_t max_rows, kernels::DType dtype, ActivationArena* arena);

  kernels::Buf y() const { return y_; }
  int64_t out() const { return out_; }

  void Forward(kernels::Device* device, kernels::Buf y, kernels::Buf x, int64_t rows) const;
  // Computes y() again, from the values before the activation.
  void Reactivate(kernels::Device* device, int64_t rows) const;
  // Sets dx to the gradient to `x`, unless dx is empty. Overwrites dy if the layer has an
  // activation.
  void Backward(kernels::Device* device, kernels::Buf dx, kernels::Buf dy, kernels::Buf x,
                int64_t rows, kernels::Accumulate weights) const;
  // Computes the backward of this layer, and the first part of the backward of the layer `before`.
  // before.BackwardFrom() computes the rest. The y() of `before` must be this layer's x, and this
  // layer must have no activation.
  //
  // Sets dx to the gradient to the values before the activation of `before`. Also computes the
  // gradient of the bias of `before`.
  void BackwardUpTo(const LinearLayer& before, kernels::Device* device, kernels::Buf dx,
                    kernels::Buf dy, int64_t rows, kernels::Accumulate weights) const;
  // Computes the rest of the backward of this layer, after BackwardUpTo() of the next layer.
  // `dpre_activation` is the dx that BackwardUpTo() has set.
  void BackwardFrom(kernels::Device* device, kernels::Buf dx, kernels::Buf dpre_activation,
                    kernels::Buf x, int64_t rows, kernels::Accumulate weights) const;

 private:
  Parameter weight_;
  Parameter bias_;
  int64_t in_;
  int64_t out_;
  kernels::Activation activation_;
  kernels::WeightOrder order_;
  kernels::Buf y_;
  kernels::Buf pre_activation_;
};

}  // namespace lodestar::model
