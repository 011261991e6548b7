// The device that a benchmark runs on, made as its flags say, and what the device has chosen.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/device_factory.h"

namespace lodestar {

// Values of the flags of the same names.
struct BenchDeviceFlags {
  std::string device;
  std::string dtype;
  std::string fusion;
  bool is_repeatable = true;
  std::string tuning_file;  // empty means that matrix products run their first algorithm
  int threads = 1;
};

// Options of MakeDevice(); the tuning is what is in the file. Errors: InvalidArgument naming the
// flag, its value and what is allowed.
absl::StatusOr<DeviceOptions> ReadDeviceFlags(const BenchDeviceFlags& flags);

// Adds to the file of --tuning_file what `device` has chosen. Without the flag it does nothing.
void KeepTuning(const BenchDeviceFlags& flags, const Device& device);

// "1.5" as a value of JSON, in at most nine significant digits; "null" for infinities and NaN,
// which JSON has no words for.
std::string JsonNumber(double value);

// Prints a line of JSON for each choice of the device: {"choice": ..., "fusion": `fusion`}.
void PrintChoices(const Device& device, const std::string& fusion);

}  // namespace lodestar
