// SPDX-License-Identifier: Apache-2.0

// Updates fp32 vectors on the CPU by an optimizer, in one pass over memory, on the calling thread.
// A server divides its vectors into ranges and uses one thread per range. The bits do not depend on
// this division. They are the same as those of Device::AdamWUpdate and Device::MomentumUpdate on
// the CPU device.
#pragma once

#include "absl/types/span.h"
#include "kernels/device.h"

namespace lodestar::vectors {

// All spans of a call must have the same size (CHECK). `weights_out` must be `weights_in` or not
// overlap it. The state (the moments) is updated in place. Both functions return true if, for each
// element, the sum of the new weight and its new state is finite. So they return false if a weight
// or a state is not finite, or if only their sum is not. The check needs no second pass over
// memory.

// Does the same as Device::AdamWUpdate. If step.weight_decay is 0, there is no decay.
bool AdamWStepCpu(absl::Span<float> weights_out, absl::Span<const float> weights_in,
                  absl::Span<float> first_moment, absl::Span<float> second_moment,
                  absl::Span<const float> gradient, const kernels::AdamWStep& step);

// Does the same as Device::MomentumUpdate. An empty `state` means plain SGD.
bool SgdMomentumStep(absl::Span<float> weights_out, absl::Span<const float> weights_in,
                     absl::Span<float> state, absl::Span<const float> gradient,
                     const kernels::MomentumStep& step);

}  // namespace lodestar::vectors
