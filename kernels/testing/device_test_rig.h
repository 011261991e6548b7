// SPDX-License-Identifier: Apache-2.0

// Runs one operation on a device and collects the outputs, so that the same test can be used for
// every device.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "kernels/device.h"

namespace lodestar::kernels {

using Outputs = std::map<std::string, std::vector<double>>;

// Makes arguments and reads back results. Inputs depend only on the seed and the order of the
// calls. They are rounded to `input_dtype`, so that the oracle gets the same numbers as a device of
// lower precision.
class DeviceTestRig {
 public:
  DeviceTestRig(Device* device, DType input_dtype, uint32_t seed = 1);
  ~DeviceTestRig();
  DeviceTestRig(const DeviceTestRig&) = delete;
  DeviceTestRig& operator=(const DeviceTestRig&) = delete;

  Device& device() { return *device_; }
  // Returns the dtype of statistics, gradients of parameters and vectors of optimizers.
  DType statistics_dtype() const;
  // Returns the rounding unit of the narrowest floating dtype among the arguments. No rounding
  // error is larger.
  double rounding_unit() const { return rounding_unit_; }

  // Returns values uniform in [-1, 1), in the compute dtype unless `dtype` is given.
  Buf Random(int64_t n);
  Buf Random(int64_t n, DType dtype);
  Buf Values(const std::vector<double>& values);
  Buf Values(const std::vector<double>& values, DType dtype);
  Buf Integers(int64_t n, int32_t end);  // uniform in [0, end)
  // Returns an output called `name`. It is filled with NaN. Behind it is a canary, which Collect()
  // checks.
  Buf Output(const std::string& name, int64_t n);
  Buf Output(const std::string& name, int64_t n, DType dtype);
  // Returns an output that has `values` before the operation.
  Buf Output(const std::string& name, const std::vector<double>& values);
  // Returns an argument that is both read and written. It has random values before the operation.
  Buf InOut(const std::string& name, int64_t n);
  Buf InOut(const std::string& name, int64_t n, DType dtype);
  Buf Workspace(int64_t n);

  // Blocks until the device is done, and returns all outputs as f64.
  Outputs Collect();

 private:
  Buf Allocate(int64_t n, DType dtype);
  void Upload(Buf to, const std::vector<double>& values);
  std::vector<double> Download(Buf from);

  struct Named {
    std::string name;
    Buf buf;
  };
  Device* device_;
  DType input_dtype_;
  std::mt19937 generator_;
  double rounding_unit_ = 0.0;
  std::vector<void*> memory_;
  std::vector<Named> outputs_;
};

}  // namespace lodestar::kernels
