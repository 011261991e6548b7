// 3x3 convolution, ReLU, 2x2 max pooling: one stage of the CNN with its parameters and saved
// activations.
#pragma once

#include <cstdint>

#include "kernels/device.h"
#include "worker/model/activation_arena.h"
#include "worker/model/parameter_arena.h"

namespace lodestar {

class ConvStage {
 public:
  // weight [out, in, 3, 3], bias [out]; `shape` is that of the largest micro-batch.
  ConvStage(Parameter weight, Parameter bias, const ConvShape& shape);

  void Plan(DType dtype, ActivationArena* arena);

  // Per sample.
  int64_t output_elements() const;
  const ConvShape& max_shape() const { return shape_; }
  // [samples, out, height / 2, width / 2], and its gradient, which the next stage sets.
  Buf y() const { return pooled_; }
  Buf dy() const { return dpooled_; }

  void Forward(Device* device, Buf x, Buf workspace, int64_t samples) const;
  // dx is set; empty: not wanted.
  void Backward(Device* device, Buf dx, Buf x, Buf workspace, int64_t samples,
                Accumulate weights) const;

 private:
  ConvShape ShapeFor(int64_t samples) const;

  Parameter weight_;
  Parameter bias_;
  ConvShape shape_;
  Buf convolved_;
  Buf dconvolved_;
  Buf pooled_;
  Buf dpooled_;
  Buf argmax_;
};

}  // namespace lodestar
