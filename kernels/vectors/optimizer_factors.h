// SPDX-License-Identifier: Apache-2.0

// Computes the fp32 factors of an optimizer's loop over elements, from the options of a step. All
// implementations use the same factors.
#pragma once

#include <cmath>

#include "kernels/operation_arguments.h"
#include "kernels/simd/loops.h"

namespace lodestar::vectors {

inline simd::AdamWFactors AdamWFactorsOf(const kernels::AdamWStep& step) {
  const double count = static_cast<double>(step.step);
  const double correction1 = 1.0 - std::pow(step.beta1, count);
  const double correction2 = 1.0 - std::pow(step.beta2, count);
  return {.beta1 = static_cast<float>(step.beta1),
          .one_minus_beta1 = static_cast<float>(1.0 - step.beta1),
          .beta2 = static_cast<float>(step.beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - step.beta2),
          .gradient_scale = static_cast<float>(step.gradient_scale),
          .decay = static_cast<float>(step.learning_rate * step.weight_decay),
          .step_size = static_cast<float>(step.learning_rate / correction1),
          .inverse_root_correction2 = static_cast<float>(1.0 / std::sqrt(correction2)),
          .epsilon = static_cast<float>(step.epsilon)};
}

inline simd::MomentumFactors MomentumFactorsOf(const kernels::MomentumStep& step) {
  return {.momentum = static_cast<float>(step.momentum),
          .gradient_scale = static_cast<float>(step.gradient_scale),
          .decay = static_cast<float>(step.learning_rate * step.weight_decay),
          .learning_rate = static_cast<float>(step.learning_rate),
          .nesterov = step.nesterov};
}

}  // namespace lodestar::vectors
