// SPDX-License-Identifier: Apache-2.0

// GradientClipper measures the norm of a vector on its device. The vector is usually a gradient,
// which must be clipped before it is applied.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/params/layout.h"
#include "kernels/device.h"

namespace lodestar::trainer {

class GradientClipper {
 public:
  // `device` must outlive the clipper. Errors: ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<GradientClipper>> Create(kernels::Device* device);
  ~GradientClipper();
  GradientClipper(const GradientClipper&) = delete;
  GradientClipper& operator=(const GradientClipper&) = delete;

  // Returns the sum of the squares of all elements. Blocks until the device has computed it.
  // Errors: those of the device.
  absl::StatusOr<double> SquareSum(kernels::Buf vector);
  // Returns the factor that brings the norm of `gradient` to at most clip_norm. If clip_norm is 0,
  // which means no clipping, the factor is 1. Blocks until the device has computed the norm.
  // Errors: those of the device.
  absl::StatusOr<float> Scale(kernels::Buf gradient, double clip_norm);
  // Does the same for some ranges of `vector`, which `gradient` lists. The norm is that of all
  // these ranges together.
  absl::StatusOr<float> Scale(kernels::Buf vector, absl::Span<const params::ElementRange> gradient,
                              double clip_norm);

 private:
  GradientClipper(kernels::Device* device, kernels::Buf square_sum)
      : device_(device), square_sum_(square_sum) {}

  kernels::Device* const device_;
  const kernels::Buf square_sum_;
};

}  // namespace lodestar::trainer
