// SPDX-License-Identifier: Apache-2.0

#include "server/optimizer/outer.h"

#include <algorithm>

#include "kernels/device.h"
#include "kernels/vectors/optimizer_step.h"
#include "kernels/vectors/reduce.h"

namespace lodestar::optimizer {

bool OuterAverage::Apply(const OptimizerCall& call, const OptimizerVectors& vectors,
                         absl::Span<const params::ElementRange> /*decay*/) const {
  return vectors::WriteScaled(vectors.weights_out.data(), vectors.gradient.data(),
                              call.gradient_scale, static_cast<int64_t>(vectors.gradient.size()));
}

bool OuterSgd::Apply(const OptimizerCall& call, const OptimizerVectors& vectors,
                     absl::Span<const params::ElementRange> /*decay*/) const {
  const kernels::MomentumStep step = {.learning_rate = learning_rate_,
                                      .momentum = 0.0,
                                      .weight_decay = 0.0,
                                      .gradient_scale = call.gradient_scale,
                                      .nesterov = false};
  return vectors::SgdMomentumStep(vectors.weights_out, vectors.weights_in, {}, vectors.gradient,
                                  step);
}

bool OuterNesterov::Apply(const OptimizerCall& call, const OptimizerVectors& vectors,
                          absl::Span<const params::ElementRange> /*decay*/) const {
  const kernels::MomentumStep step = {
      .learning_rate = config_.learning_rate,
      .momentum = config_.momentum,
      .weight_decay = 0.0,
      .gradient_scale = call.gradient_scale,
      .nesterov = true,
  };
  return vectors::SgdMomentumStep(vectors.weights_out, vectors.weights_in, vectors.state[0],
                                  vectors.gradient, step);
}

bool OuterDelayedNesterov::Apply(const OptimizerCall& call, const OptimizerVectors& vectors,
                                 absl::Span<const params::ElementRange> /*decay*/) const {
  const absl::Span<float> momentum = vectors.state[0];
  const absl::Span<float> sum = vectors.state[1];
  const absl::Span<float> anchor = vectors.state[2];
  if (call.part.is_first) {
    std::copy(vectors.weights_in.begin(), vectors.weights_in.end(), anchor.begin());
  }
  vectors::AccumulateScaled(
      sum.data(), vectors.gradient.data(), call.gradient_scale, static_cast<int64_t>(sum.size()),
      call.part.is_first ? kernels::Accumulate::kSet : kernels::Accumulate::kAdd);
  kernels::MomentumStep step = {.learning_rate = config_.learning_rate,
                                .momentum = 0.0,
                                .weight_decay = 0.0,
                                .gradient_scale = 1.0f,
                                .nesterov = false};
  if (!call.part.is_last)
    return vectors::SgdMomentumStep(vectors.weights_out, anchor, {}, sum, step);
  if (call.part.rescale != 1.0f) {
    vectors::AccumulateScaled(sum.data(), sum.data(), call.part.rescale,
                              static_cast<int64_t>(sum.size()), kernels::Accumulate::kSet);
  }
  step.momentum = config_.momentum;
  step.nesterov = true;
  return vectors::SgdMomentumStep(vectors.weights_out, anchor, momentum, sum, step);
}

bool OuterAdam::Apply(const OptimizerCall& call, const OptimizerVectors& vectors,
                      absl::Span<const params::ElementRange> /*decay*/) const {
  const kernels::AdamWStep step = {
      .learning_rate = config_.learning_rate,
      .beta1 = config_.beta1,
      .beta2 = config_.beta2,
      .epsilon = config_.epsilon,
      .weight_decay = 0.0,
      .gradient_scale = call.gradient_scale,
      .step = call.step,
  };
  return vectors::AdamWStepCpu(vectors.weights_out, vectors.weights_in, vectors.state[0],
                               vectors.state[1], vectors.gradient, step);
}

}  // namespace lodestar::optimizer
