// The operations of a GPT-2 training step, timed one by one against ceilings that are measured in
// the same run: a device-to-device copy for bytes, a large matrix product for arithmetic.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "kernels/device.h"

namespace lodestar {

// What a step has; by default that of GPT-2 124M.
struct OperationShapes {
  int64_t batch = 16;  // samples
  int64_t tokens = 1024;
  int64_t heads = 12;
  int64_t head_width = 64;
  int64_t vocabulary = 50257;
  int64_t head_rows = 50304;  // of the head's table, padded, and columns of the logits
  int64_t parameters = 124439808;
  // Of the ceilings.
  int64_t copy_bytes = int64_t{1} << 30;
  int64_t product_side = 8192;
  // Of a copy between host and device.
  int64_t host_copy_bytes = int64_t{256} << 20;
};

// Shapes that an emulated card runs within seconds.
OperationShapes SmallOperationShapes(int64_t batch);

struct Ceilings {
  double bytes_per_second = 0.0;  // read and written
  double flops_per_second = 0.0;
};

struct TimedOperation {
  std::string name;
  double seconds = 0.0;
  // Of one run. One of the two is 0: the limit that does not bind.
  double bytes = 0.0;
  double flops = 0.0;
};

// What is measured, as soon as it is.
struct OperationReports {
  std::function<void(const Ceilings&)> ceilings;
  std::function<void(const TimedOperation&)> operation;
};

// In the device's compute dtype; `repeats` >= 1 runs of each are timed, and the median counts. The
// device has events with times. Errors: those of the device, ResourceExhausted.
absl::Status BenchOperations(Device* device, const OperationShapes& shapes, int repeats,
                             const OperationReports& reports);

// Of these operations attention only, its two passes named "attention forward" + `name_suffix` and
// so on; no ceilings.
absl::Status BenchAttention(Device* device, const OperationShapes& shapes, int repeats,
                            const std::string& name_suffix, const OperationReports& reports);

}  // namespace lodestar
