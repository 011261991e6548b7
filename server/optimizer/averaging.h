// SPDX-License-Identifier: Apache-2.0

// Averaging is the update rule of the servers for averaged tensors (TensorSpec::averaged), whatever
// the job's optimizer is. It ignores the call's learning rate, decay and clipping.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "server/optimizer/optimizer.h"

namespace lodestar::optimizer {

class Averaging final : public Optimizer {
 public:
  // `state_names` are those of the job's optimizer, so that all buckets of a shard have the same
  // state vectors. `rule` must have the same state vectors, or none. If it has none, the vectors
  // stay zeros.
  Averaging(std::unique_ptr<Optimizer> rule, std::vector<std::string> state_names)
      : rule_(std::move(rule)), state_names_(std::move(state_names)) {}

  std::vector<std::string> state_names() const override { return state_names_; }
  bool Apply(const OptimizerCall& call, const OptimizerVectors& vectors,
             absl::Span<const params::ElementRange>) const override {
    return rule_->Apply({.step = call.step, .gradient_scale = call.part.factor, .part = call.part},
                        vectors, {});
  }

 private:
  const std::unique_ptr<Optimizer> rule_;
  const std::vector<std::string> state_names_;
};

}  // namespace lodestar::optimizer
