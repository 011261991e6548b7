// SPDX-License-Identifier: Apache-2.0

// Clipping of a gradient's norm, for servers and workers.
#pragma once

#include <algorithm>
#include <cmath>

namespace lodestar::job {

// Returns the factor that brings a gradient with this sum of squares to a norm of at most
// clip_norm. The 1e-6 is PyTorch's (torch.nn.utils.clip_grad_norm_). The factor is rounded to
// float, because all code applies it in float.
inline float GradientClipScale(double square_sum, double clip_norm) {
  return static_cast<float>(std::min(1.0, clip_norm / (std::sqrt(square_sum) + 1e-6)));
}

}  // namespace lodestar::job
