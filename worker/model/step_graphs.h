// SPDX-License-Identifier: Apache-2.0

// StepGraphs records steps as graphs of the device and runs the graphs again. A step is then one
// launch instead of some hundred launches. This is for small models, in which launching takes
// longer than computing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/device.h"

namespace lodestar::model {

class StepGraphs {
 public:
  // Everything that a step depends on except the contents of its buffers.
  struct Key {
    int64_t samples = 0;
    kernels::Accumulate weights = kernels::Accumulate::kSet;
    double scale = 0.0;
  };

  // `device` must support graphs and outlive the object.
  explicit StepGraphs(kernels::Device* device) : device_(device) {}

  // Queues a step. `queue_step` must queue the same operations on the compute stream each time it
  // is called for a key. The first step of a key runs without a graph, so that the device can set
  // up what it needs. The second step is recorded. Errors: those of queue_step and of the
  // recording.
  absl::Status Run(const Key& key, absl::FunctionRef<absl::Status()> queue_step);

 private:
  kernels::Device* const device_;
  // The graph of each key. Not set means that the step has run once and is not recorded yet.
  std::map<std::tuple<int64_t, kernels::Accumulate, double>, std::optional<kernels::GraphId>>
      graphs_;
};

}  // namespace lodestar::model
