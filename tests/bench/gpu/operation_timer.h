// SPDX-License-Identifier: Apache-2.0

// Times an operation of a device by events on the compute stream. Every run has the same numbers:
// inputs that the operation overwrites are restored before each run, outside of the timed part. If
// numbers shrank to zero from run to run, a card would draw less power and run faster.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "worker/model/device_memory.h"

namespace lodestar {

class OperationTimer {
 public:
  // `device` must outlive the timer and support RecordTimed(). `repeats` must be at least 1.
  OperationTimer(kernels::Device* device, int repeats) : device_(device), repeats_(repeats) {}

  // Returns the median time of a run in seconds. Each run is timed alone, so that launches of the
  // next one do not overlap. `overwritten` names the inputs that the operation also writes; as much
  // memory is allocated for copies of them. Errors: those of the device, ResourceExhausted.
  absl::StatusOr<double> Seconds(const std::vector<kernels::Buf>& overwritten,
                                 const std::function<void()>& operation);

 private:
  absl::StatusOr<double> TimeRuns(const std::vector<kernels::Buf>& overwritten,
                                  const std::vector<model::DeviceMemory>& copies,
                                  const std::function<void()>& operation);

  kernels::Device* const device_;
  const int repeats_;
};

}  // namespace lodestar
