// Times an operation of a device by events on the compute stream. Every run, timed or not, is on
// the same numbers: what the operation overwrites of its inputs is put back before it, outside of
// the time. On numbers that shrink to zero from run to run a card draws less power, and runs
// faster.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "worker/model/device_memory.h"

namespace lodestar {

class OperationTimer {
 public:
  // `device`, which outlives the timer, has events with times; repeats >= 1.
  OperationTimer(Device* device, int repeats) : device_(device), repeats_(repeats) {}

  // Median seconds of a run. Each is timed alone, so that launches of the next do not overlap.
  // `overwritten`: what the operation both reads and writes. Takes as much memory for copies of it.
  // Errors: those of the device, ResourceExhausted.
  absl::StatusOr<double> Seconds(const std::vector<Buf>& overwritten,
                                 const std::function<void()>& operation);

 private:
  absl::StatusOr<double> TimeRuns(const std::vector<Buf>& overwritten,
                                  const std::vector<DeviceMemory>& copies,
                                  const std::function<void()>& operation);

  Device* const device_;
  const int repeats_;
};

}  // namespace lodestar
