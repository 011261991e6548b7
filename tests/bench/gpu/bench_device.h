// SPDX-License-Identifier: Apache-2.0

// Makes the device that a benchmark runs on from its flags, and prints what the device has chosen.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/factory/device_factory.h"

namespace lodestar {

// Values of the flags that have the same names.
struct BenchDeviceFlags {
  std::string device;
  std::string dtype;
  std::string fusion;
  bool is_repeatable = true;
  std::string tuning_file;  // empty means that matrix products run their first algorithm
  int threads = 1;
};

// Returns options of MakeDevice(), with the text of --tuning_file. Errors: InvalidArgument naming
// the flag, its value and what is allowed.
absl::StatusOr<factory::DeviceOptions> ReadDeviceFlags(const BenchDeviceFlags& flags);

// Adds to the file of --tuning_file what `device` has chosen. Without the flag it does nothing.
void KeepTuning(const BenchDeviceFlags& flags, const kernels::Device& device);

// Returns `value` as JSON, such as "1.5", with at most nine significant digits. Infinities and NaN
// give "null", as JSON cannot express them.
std::string JsonNumber(double value);

// Prints a line of JSON for each choice of the device: {"choice": ..., "fusion": `fusion`}.
void PrintChoices(const kernels::Device& device, const std::string& fusion);

}  // namespace lodestar
