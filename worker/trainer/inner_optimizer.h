// SPDX-License-Identifier: Apache-2.0

// InnerOptimizer updates the weights in a worker's local steps (local_sgd). Its state stays on the
// device and is never sent.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/job/job_spec.h"
#include "common/params/layout.h"
#include "kernels/device.h"
#include "worker/trainer/gradient_clipper.h"

namespace lodestar::trainer {

class InnerOptimizer {
 public:
  // Makes an optimizer whose state is zero. `device` must outlive the optimizer. Errors:
  // ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<InnerOptimizer>> Create(
      const job::OptimizerSettings& settings, const params::Layout& layout,
      kernels::Device* device);
  // Returns the number of state vectors of an optimizer. Each is as long as the parameters.
  static int NumStateVectors(job::OptimizerKind kind);
  ~InnerOptimizer();
  InnerOptimizer(const InnerOptimizer&) = delete;
  InnerOptimizer& operator=(const InnerOptimizer&) = delete;

  // Queues one step over all parameters. Also writes the new weights to `narrow` in its own dtype,
  // unless `narrow` is empty. If clip_norm > 0, the gradient is scaled so that its norm is at most
  // clip_norm, and the call blocks until the norm is known. Errors: those of the device while it
  // computes the norm.
  absl::Status Step(kernels::Buf weights, kernels::Buf narrow, kernels::Buf gradient,
                    double learning_rate, double clip_norm);

  // Sets the state to zero, as after Create().
  void Reset();

  int num_vectors() const { return static_cast<int>(state_.size()); }
  // The number of steps since the state was zero.
  int64_t steps() const { return steps_; }
  // Copy state vector `index` to or from host memory. `values` has as many elements as the
  // parameter space. Both block. Errors: Unimplemented (if the state on the device is not in fp32);
  // those of the device.
  absl::Status ReadState(int index, absl::Span<float> values);
  absl::Status WriteState(int index, absl::Span<const float> values);
  void SetSteps(int64_t steps) { steps_ = steps; }
  // Must be called after the steps of a round. Returns true if weights and state are finite.
  // Otherwise sets the state to zero, so that it does not spoil the weights of the next round.
  // Blocks. Errors: those of the device.
  absl::StatusOr<bool> ResetUnlessFinite(kernels::Buf weights);

 private:
  // A range of neighbouring tensors with the same setting: weight decay, or no weight decay.
  struct DecayRange {
    params::ElementRange range;
    bool decay = false;
  };
  InnerOptimizer(const job::OptimizerSettings& settings, const params::Layout& layout,
                 kernels::Device* device);
  // Returns state vector `index`. Requires: it has `num_elements` elements. Errors: Unimplemented
  // (if it is not in fp32).
  absl::StatusOr<kernels::Buf> StateInFp32(int index, size_t num_elements) const;
  absl::StatusOr<kernels::Buf> AllocateZeros(int64_t num_elements);
  void UpdateRange(const DecayRange& part, kernels::Buf weights, kernels::Buf narrow,
                   kernels::Buf gradient, double learning_rate, double gradient_scale);

  const job::OptimizerSettings settings_;
  kernels::Device* const device_;
  std::vector<DecayRange> ranges_;
  std::vector<kernels::Buf> state_;  // 0, 1 or 2 vectors.
  std::unique_ptr<GradientClipper> clipper_;
  int64_t steps_ = 0;
};

}  // namespace lodestar::trainer
