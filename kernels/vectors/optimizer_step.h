// Optimizer updates of fp32 vectors on the CPU, one pass over memory, on the calling thread. A
// server cuts its vectors into ranges and gives each to a thread of its own: cutting anywhere gives
// the same bits, and the same bits as Device::AdamWUpdate and Device::MomentumUpdate of the CPU
// device.
#pragma once

#include "absl/types/span.h"
#include "kernels/device.h"

namespace lodestar::vectors {

// Spans are of one size (CHECK). `weights_out` is `weights_in` or does not overlap it; the state is
// updated in place. Both return whether the new weights and state are finite: false also if a
// weight and its state only together are too large. The check takes no second pass over memory.

// See Device::AdamWUpdate. No decay if step.weight_decay is 0.
bool AdamWStepCpu(absl::Span<float> weights_out, absl::Span<const float> weights_in,
                  absl::Span<float> first_moment, absl::Span<float> second_moment,
                  absl::Span<const float> gradient, const kernels::AdamWStep& step);

// See Device::MomentumUpdate. An empty `state` means plain SGD.
bool SgdMomentumStep(absl::Span<float> weights_out, absl::Span<const float> weights_in,
                     absl::Span<float> state, absl::Span<const float> gradient,
                     const kernels::MomentumStep& step);

}  // namespace lodestar::vectors
