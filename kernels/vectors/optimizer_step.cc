// SPDX-License-Identifier: Apache-2.0

#include "kernels/vectors/optimizer_step.h"

#include "common/runtime/check.h"
#include "kernels/simd/loops.h"
#include "kernels/vectors/optimizer_factors.h"

namespace lodestar::vectors {

bool AdamWStepCpu(absl::Span<float> weights_out, absl::Span<const float> weights_in,
                  absl::Span<float> first_moment, absl::Span<float> second_moment,
                  absl::Span<const float> gradient, const kernels::AdamWStep& step) {
  const size_t n = gradient.size();
  LODESTAR_CHECK(weights_out.size() == n && weights_in.size() == n);
  LODESTAR_CHECK(first_moment.size() == n && second_moment.size() == n);
  LODESTAR_CHECK(step.step >= 1) << "step=" << step.step;
  return simd::BestLoops().adamw(weights_out.data(), weights_in.data(), first_moment.data(),
                                 second_moment.data(), gradient.data(), static_cast<int64_t>(n),
                                 AdamWFactorsOf(step));
}

bool SgdMomentumStep(absl::Span<float> weights_out, absl::Span<const float> weights_in,
                     absl::Span<float> state, absl::Span<const float> gradient,
                     const kernels::MomentumStep& step) {
  const size_t n = gradient.size();
  LODESTAR_CHECK(weights_out.size() == n && weights_in.size() == n);
  LODESTAR_CHECK(state.empty() || state.size() == n);
  return simd::BestLoops().momentum(weights_out.data(), weights_in.data(),
                                    state.empty() ? nullptr : state.data(), gradient.data(),
                                    static_cast<int64_t>(n), MomentumFactorsOf(step));
}

}  // namespace lodestar::vectors
