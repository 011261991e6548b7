// The seam between a process and liblodestar_cuda.so. The plugin exports two C functions under the
// names below; both sides are built from one tree, and kCudaPluginVersion refuses a plugin left
// over from another.
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
// To be raised whenever device.h or the options below change.
inline constexpr int kCudaPluginVersion = 9;

// Whether biases, activations and sums become part of matrix products, and whether attention is
// cuDNN's, where the card can do both.
// kMeasure: what is faster at the first use of a shape; two runs may choose differently, and then
// differ in the last bits, unless the second has the tuning of the first.
enum class FusionPolicy : uint8_t { kMeasure, kNever, kAlways };

struct CudaPluginOptions {
  int ordinal = 0;
  kernels::DType compute = kernels::DType::kF32;  // or kBf16
  FusionPolicy fusion = FusionPolicy::kMeasure;
  // False: attention of a library may add gradients up in any order, which is faster. Equal calls
  // then differ in last bits.
  bool is_repeatable = true;
  // Set: algorithms of matrix products are measured, too, and what is chosen can be had from
  // Device::MergeTuning(). The text of an earlier one, which need not be measured again, or empty.
  std::optional<std::string> tuning = {};
};

// Returns a new device that the caller deletes, or null with *error set. `version` is the caller's
// kCudaPluginVersion.
using CudaPluginEntryPoint = kernels::Device* (*)(int version, const CudaPluginOptions* options,
                                                  absl::Status* error);

// Returns how many devices there are, or 0 with *error set.
using CudaPluginCountEntryPoint = int (*)(int version, absl::Status* error);

// Loads the plugin from the executable's folder, else from the library search path; cuBLASLt, which
// it needs, where the plugin itself does not find it, from a Python environment on the PATH. It is
// never unloaded. Errors: NotFound with what was tried, or for a card that there is not;
// Unavailable without driver or card; InvalidArgument for a dtype that the card cannot compute in.
absl::StatusOr<std::unique_ptr<kernels::Device>> LoadCudaDevice(const CudaPluginOptions& options);
// Devices that this process may use, at least 1; takes no memory on them. Errors: as above.
absl::StatusOr<int> CountCudaDevices();

// Whether this machine has NVIDIA's driver, without which no CUDA device can be.
bool HasCudaDriver();

}  // namespace lodestar::factory
