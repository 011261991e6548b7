// Steps recorded as graphs of the device and run again, one launch instead of some hundred: for
// models so small that launching takes longer than computing.
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
  // All that a step depends on besides the contents of its buffers.
  struct Key {
    int64_t samples = 0;
    kernels::Accumulate weights = kernels::Accumulate::kSet;
    double scale = 0.0;
  };

  // `device` supports graphs and outlives this.
  explicit StepGraphs(kernels::Device* device) : device_(device) {}

  // Queues the step. `queue_step` queues operations on the compute stream, the same for the same
  // key. The first time of a key it is run as it is, so that whatever the device sets up with the
  // first call is there; the second time it is recorded. Errors: those of queue_step and of the
  // recording.
  absl::Status Run(const Key& key, absl::FunctionRef<absl::Status()> queue_step);

 private:
  kernels::Device* const device_;
  // Empty: has run once.
  std::map<std::tuple<int64_t, kernels::Accumulate, double>, std::optional<kernels::GraphId>>
      graphs_;
};

}  // namespace lodestar::model
