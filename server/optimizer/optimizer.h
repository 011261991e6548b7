// SPDX-License-Identifier: Apache-2.0

// An Optimizer is one update rule, applied to a contiguous part of the parameter space. It works
// element by element: how the space is divided changes no bit of the result.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/params/layout.h"

namespace lodestar::optimizer {

// A step can be made in parts (see DelayedStep). Then each call of Apply() gets one contribution to
// the mean of the step, and a StepPart describes the part.
struct StepPart {
  bool is_first = true;
  bool is_last = true;
  float factor = 1.0f;   // factor of the part in the sum; OptimizerCall::gradient_scale includes it
  float rescale = 1.0f;  // factor of the last part: turns the sum into the mean of all parts
  friend bool operator==(const StepPart&, const StepPart&) = default;
};

// The arguments that differ from update to update.
struct OptimizerCall {
  int64_t step = 1;  // 1 for the first update of these weights; for AdamW's bias correction
  double learning_rate = 0.0;
  float gradient_scale = 1.0f;  // factor for the gradient, such as clipping; applied first
  StepPart part = {};
};

inline constexpr int kMaxStateVectors = 3;

// The vectors of one part, all of the same length. weights_out must be weights_in itself, or not
// overlap it.
struct OptimizerVectors {
  absl::Span<const float> gradient;
  absl::Span<const float> weights_in;
  absl::Span<float> weights_out;
  // The first num_state_vectors() of the vectors are used. They are updated in place.
  std::array<absl::Span<float>, kMaxStateVectors> state;
};

// The class is thread-safe, because it holds settings only.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Returns the names of the state vectors, in order. The tensors in checkpoints have these names.
  // The vectors start as zeros.
  virtual std::vector<std::string> state_names() const = 0;
  int num_state_vectors() const { return static_cast<int>(state_names().size()); }

  // Makes one update. Weight decay applies to the ranges `decay`, which are relative to the
  // vectors' start, ascending and disjoint. Returns true if the new weights and state are finite.
  virtual bool Apply(const OptimizerCall& call, const OptimizerVectors& vectors,
                     absl::Span<const params::ElementRange> decay) const = 0;
};

}  // namespace lodestar::optimizer
