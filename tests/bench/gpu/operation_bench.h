// SPDX-License-Identifier: Apache-2.0

// Times the operations of a GPT-2 training step one by one, and measures ceilings to compare them
// with: a device-to-device copy for bytes, a large matrix product for arithmetic.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "kernels/device.h"

namespace lodestar {

// Sizes of a step. The defaults are those of GPT-2 124M.
struct OperationShapes {
  int64_t batch = 16;  // number of samples
  int64_t tokens = 1024;
  int64_t heads = 12;
  int64_t head_width = 64;
  int64_t vocabulary = 50257;
  int64_t head_rows = 50304;  // padded rows of the head's table, and columns of the logits
  int64_t parameters = 124439808;
  // Sizes for the ceilings: bytes of the copy, and rows of the two square matrices of the product.
  int64_t copy_bytes = int64_t{1} << 30;
  int64_t product_side = 8192;
  // Bytes of a copy between host and device.
  int64_t host_copy_bytes = int64_t{256} << 20;
};

// Returns shapes that an emulated card runs within seconds.
OperationShapes SmallOperationShapes(int64_t batch);

struct Ceilings {
  double bytes_per_second = 0.0;  // bytes read plus bytes written
  double flops_per_second = 0.0;
};

struct TimedOperation {
  std::string name;
  double seconds = 0.0;
  // Work of one run. Only the work that limits the operation is counted; the other is 0.
  double bytes = 0.0;
  double flops = 0.0;
};

// Functions that are called with each result as soon as it is measured.
struct OperationReports {
  std::function<void(const Ceilings&)> ceilings;
  std::function<void(const TimedOperation&)> operation;
};

// Times the operations in the device's compute dtype, and reports the median of `repeats` >= 1 runs
// of each. The device must support RecordTimed(). Errors: those of the device, ResourceExhausted.
absl::Status BenchOperations(kernels::Device* device, const OperationShapes& shapes, int repeats,
                             const OperationReports& reports);

// Times only attention, without ceilings. The two passes are named "attention forward" and
// "attention backward", followed by `name_suffix`. Errors: those of BenchOperations().
absl::Status BenchAttention(kernels::Device* device, const OperationShapes& shapes, int repeats,
                            const std::string& name_suffix, const OperationReports& reports);

}  // namespace lodestar
