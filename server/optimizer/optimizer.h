// One update rule, applied to a contiguous part of the parameter space. Element-wise: where the
// space is cut changes no bit of the result.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/params/layout.h"

namespace lodestar::optimizer {

// Where a step is made in parts, as what it is the mean of comes: see DelayedStep. Each call then
// has one part of the mean's sum.
struct StepPart {
  bool is_first = true;
  bool is_last = true;
  float factor = 1.0f;   // of the part in the sum; OptimizerCall::gradient_scale has it, too
  float rescale = 1.0f;  // of the last: makes the sum the mean of those that came
  friend bool operator==(const StepPart&, const StepPart&) = default;
};

// What differs from update to update.
struct OptimizerCall {
  int64_t step = 1;  // 1 for the first update of these weights; AdamW's bias correction
  double learning_rate = 0.0;
  float gradient_scale = 1.0f;  // the gradient is multiplied by it first; clipping
  StepPart part = {};
};

inline constexpr int kMaxStateVectors = 3;

// The vectors of one part; all of the same length. weights_out is weights_in itself or does not
// overlap it.
struct OptimizerVectors {
  absl::Span<const float> gradient;
  absl::Span<const float> weights_in;
  absl::Span<float> weights_out;
  std::array<absl::Span<float>, kMaxStateVectors> state;  // the first num_state_vectors(); in place
};

// Thread-safe: holds settings only.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Names of the state vectors, in order; they name the tensors in checkpoints. State starts as
  // zeros.
  virtual std::vector<std::string> state_names() const = 0;
  int num_state_vectors() const { return static_cast<int>(state_names().size()); }

  // `decay` are the ranges, relative to the vectors' start, ascending and disjoint, to which weight
  // decay applies. Returns whether the new weights and state are finite.
  virtual bool Apply(const OptimizerCall& call, const OptimizerVectors& vectors,
                     absl::Span<const ElementRange> decay) const = 0;
};

}  // namespace lodestar::optimizer
