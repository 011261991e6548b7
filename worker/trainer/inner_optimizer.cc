// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/inner_optimizer.h"

#include <cmath>

#include "common/runtime/check.h"
#include "common/runtime/status_macros.h"

namespace lodestar::trainer {
int InnerOptimizer::NumStateVectors(job::OptimizerKind kind) {
  switch (kind) {
    case job::OptimizerKind::kSgd:
    case job::OptimizerKind::kReduce:  // Jobs with local steps do not have it.
      return 0;
    case job::OptimizerKind::kMomentum:
    case job::OptimizerKind::kNesterov:
      return 1;
    case job::OptimizerKind::kAdamW:
      return 2;
  }
  return 0;
}

InnerOptimizer::InnerOptimizer(const job::OptimizerSettings& settings, const params::Layout& layout,
                               kernels::Device* device)
    : settings_(settings), device_(device) {
  for (const params::TensorSpec& tensor : layout.tensors()) {
    const int64_t end = tensor.offset + tensor.num_elements();
    if (!ranges_.empty() && ranges_.back().decay == tensor.decay) {
      ranges_.back().range.end = end;
    } else {
      ranges_.push_back({{tensor.offset, end}, tensor.decay});
    }
  }
}

absl::StatusOr<std::unique_ptr<InnerOptimizer>> InnerOptimizer::Create(
    const job::OptimizerSettings& settings, const params::Layout& layout, kernels::Device* device) {
  auto optimizer = std::unique_ptr<InnerOptimizer>(new InnerOptimizer(settings, layout, device));
  for (int i = 0; i < NumStateVectors(settings.kind); ++i) {
    ASSIGN_OR_RETURN(kernels::Buf state, optimizer->AllocateZeros(layout.num_elements()));
    optimizer->state_.push_back(state);
  }
  ASSIGN_OR_RETURN(optimizer->clipper_, GradientClipper::Create(device));
  return optimizer;
}

InnerOptimizer::~InnerOptimizer() {
  for (const kernels::Buf& state : state_) device_->Release(state.data);
}

absl::StatusOr<kernels::Buf> InnerOptimizer::AllocateZeros(int64_t num_elements) {
  const kernels::DType dtype = kernels::StatisticsDType(device_->capabilities().compute);
  ASSIGN_OR_RETURN(void* memory, device_->Allocate(kernels::DTypeBytes(dtype) * num_elements));
  const kernels::Buf buffer{memory, dtype, num_elements};
  device_->Fill(buffer, 0.0);
  return buffer;
}

absl::Status InnerOptimizer::Step(kernels::Buf weights, kernels::Buf narrow, kernels::Buf gradient,
                                  double learning_rate, double clip_norm) {
  ASSIGN_OR_RETURN(const float scale, clipper_->Scale(gradient, clip_norm));
  ++steps_;
  for (const DecayRange& part : ranges_) {
    UpdateRange(part, weights, narrow, gradient, learning_rate, scale);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> InnerOptimizer::ResetUnlessFinite(kernels::Buf weights) {
  std::vector<kernels::Buf> vectors = state_;
  vectors.push_back(weights);
  double sum = 0.0;
  for (const kernels::Buf& vector : vectors) {
    ASSIGN_OR_RETURN(const double square_sum, clipper_->SquareSum(vector));
    sum += square_sum;
  }
  if (std::isfinite(sum)) return true;
  Reset();
  return false;
}

void InnerOptimizer::Reset() {
  for (const kernels::Buf& state : state_) device_->Fill(state, 0.0);
  steps_ = 0;
}

absl::StatusOr<kernels::Buf> InnerOptimizer::StateInFp32(int index, size_t num_elements) const {
  const kernels::Buf& state = state_.at(index);
  LODESTAR_CHECK(static_cast<size_t>(state.num_elements) == num_elements);
  if (state.dtype == kernels::DType::kF32) return state;
  return absl::UnimplementedError(
      "this device keeps the state of the inner optimizer in fp64, but only fp32 can be saved");
}

absl::Status InnerOptimizer::ReadState(int index, absl::Span<float> values) {
  ASSIGN_OR_RETURN(const kernels::Buf state, StateInFp32(index, values.size()));
  constexpr kernels::StreamKind kStream = kernels::StreamKind::kCompute;
  device_->Copy(values.data(), state.data, values.size() * sizeof(float), kStream);
  return device_->Synchronize(device_->Record(kStream));
}

absl::Status InnerOptimizer::WriteState(int index, absl::Span<const float> values) {
  ASSIGN_OR_RETURN(const kernels::Buf state, StateInFp32(index, values.size()));
  constexpr kernels::StreamKind kStream = kernels::StreamKind::kCompute;
  device_->Copy(state.data, values.data(), values.size() * sizeof(float), kStream);
  return device_->Synchronize(device_->Record(kStream));
}

void InnerOptimizer::UpdateRange(const DecayRange& part, kernels::Buf weights, kernels::Buf narrow,
                                 kernels::Buf gradient, double learning_rate,
                                 double gradient_scale) {
  const auto slice = [&part](kernels::Buf vector) {
    return vector ? vector.Slice(part.range.begin, part.range.size()) : kernels::Buf{};
  };
  const double weight_decay = part.decay ? settings_.weight_decay : 0.0;
  if (settings_.kind == job::OptimizerKind::kAdamW) {
    device_->AdamWUpdate(slice(weights), slice(state_[0]), slice(state_[1]), slice(gradient),
                         slice(narrow),
                         {.learning_rate = learning_rate,
                          .beta1 = settings_.beta1,
                          .beta2 = settings_.beta2,
                          .epsilon = settings_.epsilon,
                          .weight_decay = weight_decay,
                          .gradient_scale = gradient_scale,
                          .step = steps_});
    return;
  }
  device_->MomentumUpdate(slice(weights), state_.empty() ? kernels::Buf{} : slice(state_[0]),
                          slice(gradient), slice(narrow),
                          {.learning_rate = learning_rate,
                           .momentum = state_.empty() ? 0.0 : settings_.momentum,
                           .weight_decay = weight_decay,
                           .gradient_scale = gradient_scale,
                           .nesterov = settings_.kind == job::OptimizerKind::kNesterov});
}

}  // namespace lodestar::trainer
