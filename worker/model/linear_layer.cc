#include "worker/model/linear_layer.h"

namespace lodestar {

LinearLayer::LinearLayer(Parameter weight, Parameter bias, int64_t in, int64_t out,
                         Activation activation, WeightOrder order)
    : weight_(weight), bias_(bias), in_(in), out_(out), activation_(activation), order_(order) {}

void LinearLayer::Plan(int64_t max_rows, DType dtype, ActivationArena* arena) {
  PlanOutput(max_rows, dtype, arena);
  PlanPreActivation(max_rows, dtype, arena);
}

void LinearLayer::PlanOutput(int64_t max_rows, DType dtype, ActivationArena* arena) {
  arena->Plan(&y_, max_rows * out_, dtype);
}

void LinearLayer::PlanPreActivation(int64_t max_rows, DType dtype, ActivationArena* arena) {
  if (activation_ != Activation::kNone) arena->Plan(&pre_activation_, max_rows * out_, dtype);
}

void LinearLayer::Forward(Device* device, Buf y, Buf x, int64_t rows) const {
  device->LinearForward(y, pre_activation_, x, weight_.value, bias_.value, rows, in_, out_,
                        activation_, order_);
}

void LinearLayer::Reactivate(Device* device, int64_t rows) const {
  device->Activate(y_.Slice(0, rows * out_), pre_activation_.Slice(0, rows * out_), activation_);
}

void LinearLayer::Backward(Device* device, Buf dx, Buf dy, Buf x, int64_t rows,
                           Accumulate weights) const {
  device->LinearBackward(dx, weight_.gradient, bias_.gradient, dy, pre_activation_, x,
                         weight_.value, rows, in_, out_, activation_, order_, weights);
}

void LinearLayer::BackwardUpTo(const LinearLayer& before, Device* device, Buf dx, Buf dy,
                               int64_t rows, Accumulate weights) const {
  device->LinearBackward(/*dx=*/{}, weight_.gradient, bias_.gradient, dy, /*pre_activation=*/{},
                         before.y_, weight_.value, rows, in_, out_, activation_, order_, weights);
  device->LinearBackwardInput(dx, before.bias_.gradient, dy, before.pre_activation_, weight_.value,
                              rows, in_, out_, before.activation_, order_, weights);
}

void LinearLayer::BackwardFrom(Device* device, Buf dx, Buf dpre_activation, Buf x, int64_t rows,
                               Accumulate weights) const {
  device->LinearBackward(dx, weight_.gradient, /*db=*/{}, dpre_activation, /*pre_activation=*/{}, x,
                         weight_.value, rows, in_, out_, Activation::kNone, order_, weights);
}

}  // namespace lodestar
