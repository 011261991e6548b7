// Clipping of a gradient's norm, said once for servers and workers.
#pragma once

#include <algorithm>
#include <cmath>

namespace lodestar {

// Factor that brings a gradient with this sum of squares to a norm of at most clip_norm; the 1e-6
// is PyTorch's (torch.nn.utils.clip_grad_norm_). Rounded to float, because the factor is applied in
// float everywhere.
inline float GradientClipScale(double square_sum, double clip_norm) {
  return static_cast<float>(std::min(1.0, clip_norm / (std::sqrt(square_sum) + 1e-6)));
}

}  // namespace lodestar
