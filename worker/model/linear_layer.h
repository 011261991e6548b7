// y = activation(x w^T + b), or x w + b, with its parameters and saved activations.
#pragma once

#include <cstdint>

#include "kernels/device.h"
#include "worker/model/activation_arena.h"
#include "worker/model/parameter_arena.h"

namespace lodestar {

class LinearLayer {
 public:
  // weight [out, in] or [in, out] as `order` says, bias [out].
  LinearLayer(Parameter weight, Parameter bias, int64_t in, int64_t out, Activation activation,
              WeightOrder order);

  // Reserves y (and the values before the activation) for max_rows. Layers whose output goes
  // elsewhere skip this and have no activation.
  void Plan(int64_t max_rows, DType dtype, ActivationArena* arena);
  // The two parts of it.
  void PlanOutput(int64_t max_rows, DType dtype, ActivationArena* arena);
  void PlanPreActivation(int64_t max_rows, DType dtype, ActivationArena* arena);

  Buf y() const { return y_; }
  int64_t out() const { return out_; }

  void Forward(Device* device, Buf y, Buf x, int64_t rows) const;
  // y() once more, from the values before the activation.
  void Reactivate(Device* device, int64_t rows) const;
  // dy is overwritten where there is an activation. dx is set; empty: not wanted.
  void Backward(Device* device, Buf dx, Buf dy, Buf x, int64_t rows, Accumulate weights) const;
  // The same in two parts that meet before the activation of the layer before this one, whose y()
  // is this layer's x. This one has no activation. dx is set to the gradient there, and the
  // gradient of the other's bias is done, too.
  void BackwardUpTo(const LinearLayer& before, Device* device, Buf dx, Buf dy, int64_t rows,
                    Accumulate weights) const;
  // The rest of the other, from the dx of BackwardUpTo().
  void BackwardFrom(Device* device, Buf dx, Buf dpre_activation, Buf x, int64_t rows,
                    Accumulate weights) const;

 private:
  Parameter weight_;
  Parameter bias_;
  int64_t in_;
  int64_t out_;
  Activation activation_;
  WeightOrder order_;
  Buf y_;
  Buf pre_activation_;
};

}  // namespace lodestar
