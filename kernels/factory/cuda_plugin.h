// SPDX-License-Identifier: Apache-2.0

// Defines the interface between a process and liblodestar_cuda.so. The plugin exports two C
// functions, whose names are below. Both sides must be built from the same source tree.
// kCudaPluginVersion prevents that a plugin of another tree is used.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace lodestar::factory {

inline constexpr char kCudaPluginFile[] = "liblodestar_cuda.so";
inline constexpr char kCudaPluginEntryPoint[] = "LodestarMakeCudaDevice";
inline constexpr char kCudaPluginCountEntryPoint[] = "LodestarCountCudaDevices";
// Raise this number whenever device.h or the options below change.
inline constexpr int kCudaPluginVersion = 9;

// Says whether biases, activations and sums are fused into matrix products, and whether cuDNN
// computes attention, if the card can do this.
// kMeasure chooses the faster way at the first use of a shape. So two runs may choose differently
// and give results that differ in the last bits, unless the second run uses the tuning of the
// first.
enum class FusionPolicy : uint8_t { kMeasure, kNever, kAlways };

struct CudaPluginOptions {
  int ordinal = 0;
  kernels::DType compute = kernels::DType::kF32;  // kF32 or kBf16
  FusionPolicy fusion = FusionPolicy::kMeasure;
  // False means that a library's attention may add gradients in any order, which is faster. Equal
  // calls may then give results that differ in the last bits.
  bool is_repeatable = true;
  // The text of an earlier Device::MergeTuning(), or an empty text. If it is set, the device uses
  // the choices in it, also measures algorithms of other matrix products, and returns all choices
  // from Device::MergeTuning(). If it is not set, algorithms of matrix products are not measured.
  std::optional<std::string> tuning = {};
};

// Returns a new device, which the caller must delete. On failure, returns null and sets *error.
// `version` is the caller's kCudaPluginVersion.
using CudaPluginEntryPoint = kernels::Device* (*)(int version, const CudaPluginOptions* options,
                                                  absl::Status* error);

// Returns the number of CUDA devices. On failure, returns 0 and sets *error.
using CudaPluginCountEntryPoint = int (*)(int version, absl::Status* error);

// Loads the plugin and makes a device. Looks for the plugin in the executable's folder, then in the
// library search path. If the plugin needs cuBLASLt and does not find it, loads cuBLASLt from a
// Python environment on the PATH. The plugin is never unloaded. Errors:
// - NotFound: the plugin was not loaded (the message has the places tried), or the card does not
//   exist;
// - Unavailable: there is no driver or no card;
// - InvalidArgument: the card cannot compute in the dtype.
absl::StatusOr<std::unique_ptr<kernels::Device>> LoadCudaDevice(const CudaPluginOptions& options);
// Returns how many CUDA devices this process may use, at least 1. Allocates no memory on them.
// Errors: NotFound or Unavailable, as for LoadCudaDevice().
absl::StatusOr<int> CountCudaDevices();

// Returns true if this machine has NVIDIA's driver. Without the driver there is no CUDA device.
bool HasCudaDriver();

}  // namespace lodestar::factory
