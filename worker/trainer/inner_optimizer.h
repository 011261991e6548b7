// The optimizer of a worker's local steps (local_sgd). Its state stays on the device and is never
// sent.
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
  // The state starts at zero. `device` outlives the optimizer. Errors: ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<InnerOptimizer>> Create(const OptimizerSettings& settings,
                                                                const Layout& layout,
                                                                kernels::Device* device);
  // Returns how many vectors of the parameters' size it keeps.
  static int NumStateVectors(OptimizerKind kind);
  ~InnerOptimizer();
  InnerOptimizer(const InnerOptimizer&) = delete;
  InnerOptimizer& operator=(const InnerOptimizer&) = delete;

  // Queues one step over the whole parameter space. `narrow` (may be empty) is set to the new
  // weights in its own dtype. clip_norm > 0 first scales the gradient so that its norm is at most
  // that, and blocks for it. Errors: those of the device seen so far.
  absl::Status Step(kernels::Buf weights, kernels::Buf narrow, kernels::Buf gradient,
                    double learning_rate, double clip_norm);

  // Sets the state to what it is after Create().
  void Reset();

  int num_vectors() const { return static_cast<int>(state_.size()); }
  // The number of steps since the state was zero.
  int64_t steps() const { return steps_; }
  // Copies state vector `index` to or from host memory, [elements of the parameter space]. Blocks.
  // Errors: Unimplemented if the device does not keep the state in fp32; those of the device.
  absl::Status ReadState(int index, absl::Span<float> values);
  absl::Status WriteState(int index, absl::Span<const float> values);
  void SetSteps(int64_t steps) { steps_ = steps; }
  // Must be called after the steps of a round. If weights or state are not finite any more, the
  // state starts at zero again: weights come anew, but the state would spoil them as well. Returns
  // whether they were finite. Blocks. Errors: those of the device.
  absl::StatusOr<bool> ResetUnlessFinite(kernels::Buf weights);

 private:
  // Neighbouring tensors that share the decay mark.
  struct DecayRange {
    ElementRange range;
    bool decay = false;
  };
  InnerOptimizer(const OptimizerSettings& settings, const Layout& layout, kernels::Device* device);
  // Returns the state vector number `index`, if it is in fp32 and has `num_elements`.
  absl::StatusOr<kernels::Buf> StateInFp32(int index, size_t num_elements) const;
  absl::StatusOr<kernels::Buf> AllocateZeros(int64_t num_elements);
  void UpdateRange(const DecayRange& part, kernels::Buf weights, kernels::Buf narrow,
                   kernels::Buf gradient, double learning_rate, double gradient_scale);

  const OptimizerSettings settings_;
  kernels::Device* const device_;
  std::vector<DecayRange> ranges_;
  std::vector<kernels::Buf> state_;  // There are 0, 1 or 2 vectors.
  std::unique_ptr<GradientClipper> clipper_;
  int64_t steps_ = 0;
};

}  // namespace lodestar::trainer
