// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/gradient_clipper.h"

#include "common/job/gradient_clip.h"
#include "common/runtime/status_macros.h"

namespace lodestar::trainer {

absl::StatusOr<std::unique_ptr<GradientClipper>> GradientClipper::Create(kernels::Device* device) {
  ASSIGN_OR_RETURN(void* memory, device->Allocate(sizeof(double)));
  return std::unique_ptr<GradientClipper>(
      new GradientClipper(device, kernels::Buf{memory, kernels::DType::kF64, 1}));
}

GradientClipper::~GradientClipper() { device_->Release(square_sum_.data); }

absl::StatusOr<double> GradientClipper::SquareSum(kernels::Buf vector) {
  device_->SumOfSquares(square_sum_, vector);
  double square_sum = 0.0;
  device_->Copy(&square_sum, square_sum_.data, sizeof(square_sum), kernels::StreamKind::kCompute);
  RETURN_IF_ERROR(device_->Synchronize(device_->Record(kernels::StreamKind::kCompute)));
  return square_sum;
}

absl::StatusOr<float> GradientClipper::Scale(kernels::Buf gradient, double clip_norm) {
  return Scale(gradient, {{0, gradient.num_elements}}, clip_norm);
}

absl::StatusOr<float> GradientClipper::Scale(kernels::Buf vector,
                                             absl::Span<const params::ElementRange> gradient,
                                             double clip_norm) {
  if (clip_norm <= 0.0) return 1.0f;
  double square_sum = 0.0;
  for (const params::ElementRange& range : gradient) {
    ASSIGN_OR_RETURN(const double of_range, SquareSum(vector.Slice(range.begin, range.size())));
    square_sum += of_range;
  }
  return job::GradientClipScale(square_sum, clip_norm);
}

}  // namespace lodestar::trainer
