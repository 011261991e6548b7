// y = activation(x w^T + b), or x w + b, with its parameters and saved activations.
#pragma once

#include <cstdint>

#include "kernels/device.h"
#include "worker/model/activation_arena.h"
#include "worker/model/parameter_arena.h"

namespace lodestar::model {

class LinearLayer {
 public:
  // weight [out, in] or [in, out] as `order` says, bias [out].
  LinearLayer(Parameter weight, Parameter bias, int64_t in, int64_t out,
              kernels::Activation activation, kernels::WeightOrder order);

  // Reserves y (and the values before the activation) for max_rows. Layers whose output goes
  // elsewhere skip this and have no activation.
  void Plan(int64_t max_rows, kernels::DType dtype, ActivationArena* arena);
  // The two parts of it.
  void PlanOutput(int64_t max_rows, kernels::DType dtype, ActivationArena* arena);
  void PlanPreActivation(int64_t max_rows, kernels::DType dtype, ActivationArena* arena);

  kernels::Buf y() const { return y_; }
  int64_t out() const { return out_; }

  void Forward(kernels::Device* device, kernels::Buf y, kernels::Buf x, int64_t rows) const;
  // y() once more, from the values before the activation.
  void Reactivate(kernels::Device* device, int64_t rows) const;
  // dy is overwritten where there is an activation. dx is set; empty: not wanted.
  void Backward(kernels::Device* device, kernels::Buf dx, kernels::Buf dy, kernels::Buf x,
                int64_t rows, kernels::Accumulate weights) const;
  // The same in two parts that meet before the activation of the layer before this one, whose y()
  // is this layer's x. This one has no activation. dx is set to the gradient there, and the
  // gradient of the other's bias is done, too.
  void BackwardUpTo(const LinearLayer& before, kernels::Device* device, kernels::Buf dx,
                    kernels::Buf dy, int64_t rows, kernels::Accumulate weights) const;
  // The rest of the other, from the dx of BackwardUpTo().
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
