#include "kernels/optimizer_step.h"

#include <cmath>

#include "common/check.h"
#include "kernels/simd/loops.h"

namespace lodestar {

void AdamWStepCpu(absl::Span<float> weights_out, absl::Span<const float> weights_in,
                  absl::Span<float> first_moment, absl::Span<float> second_moment,
                  absl::Span<const float> gradient, const AdamWStep& step) {
  const size_t n = gradient.size();
  LODESTAR_CHECK(weights_out.size() == n && weights_in.size() == n);
  LODESTAR_CHECK(first_moment.size() == n && second_moment.size() == n);
  LODESTAR_CHECK(step.step >= 1) << "step=" << step.step;
  const double count = static_cast<double>(step.step);
  const double correction1 = 1.0 - std::pow(step.beta1, count);
  const double correction2 = 1.0 - std::pow(step.beta2, count);
  const simd::AdamWFactors factors = {
      .beta1 = static_cast<float>(step.beta1),
      .one_minus_beta1 = static_cast<float>(1.0 - step.beta1),
      .beta2 = static_cast<float>(step.beta2),
      .one_minus_beta2 = static_cast<float>(1.0 - step.beta2),
      .gradient_scale = static_cast<float>(step.gradient_scale),
      .decay = static_cast<float>(step.learning_rate * step.weight_decay),
      .step_size = static_cast<float>(step.learning_rate / correction1),
      .inverse_root_correction2 = static_cast<float>(1.0 / std::sqrt(correction2)),
      .epsilon = static_cast<float>(step.epsilon),
  };
  simd::BestLoops().adamw(weights_out.data(), weights_in.data(), first_moment.data(),
                          second_moment.data(), gradient.data(), static_cast<int64_t>(n), factors);
}

void SgdMomentumStep(absl::Span<float> weights_out, absl::Span<const float> weights_in,
                     absl::Span<float> state, absl::Span<const float> gradient,
                     const MomentumStep& step) {
  const size_t n = gradient.size();
  LODESTAR_CHECK(weights_out.size() == n && weights_in.size() == n);
  LODESTAR_CHECK(state.empty() || state.size() == n);
  const simd::MomentumFactors factors = {
      .momentum = static_cast<float>(step.momentum),
      .gradient_scale = static_cast<float>(step.gradient_scale),
      .decay = static_cast<float>(step.learning_rate * step.weight_decay),
      .learning_rate = static_cast<float>(step.learning_rate),
      .nesterov = step.nesterov,
  };
  simd::BestLoops().momentum(weights_out.data(), weights_in.data(),
                             state.empty() ? nullptr : state.data(), gradient.data(),
                             static_cast<int64_t>(n), factors);
}

}  // namespace lodestar
