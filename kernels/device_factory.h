// Makes the Device that a process computes on. CUDA is a plugin, liblodestar_cuda.so, so that one
// binary runs with and without it; nothing here links against CUDA.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda_plugin.h"
#include "kernels/device.h"
#include "kernels/device_set.h"

namespace lodestar {

struct DeviceOptions {
  // auto    the first CUDA device if the plugin loads and finds one, else the CPU,
  // cpu     fp32 on `threads` threads,
  // cuda    the first CUDA device, cuda:N that of this ordinal; or an error saying why there is
  //         none; for MakeDevices() also cuda:all and cuda:N,M,...,
  // oracle  fp64, slow, one thread: the reference of the tests.
  std::string kind = "auto";
  DType compute = DType::kF32;  // or kBf16, which needs CUDA; the oracle does not look at it
  int threads = 0;              // of the CPU; 0: one per core that this process may use
  FusionPolicy fusion = FusionPolicy::kMeasure;  // of CUDA
  bool is_repeatable = true;                     // of CUDA; see CudaPluginOptions
  std::optional<std::string> tuning = {};        // of CUDA; see CudaPluginOptions
};

// With `auto`, *why_not_cuda (may be null) tells why the CPU was chosen; it is empty otherwise. On
// a machine without NVIDIA's driver that is all it says: nobody expects a card to be found there.
// Errors: InvalidArgument for another kind, threads out of range, or a dtype that the device cannot
// compute in; NotFound or Unavailable for `cuda` without plugin or device.
absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const DeviceOptions& options,
                                                   std::string* why_not_cuda);
// One or, as options.kind says, several that compute parts of each step. Errors: also those of
// Device::MakeGroup().
absl::StatusOr<DeviceSet> MakeDevices(const DeviceOptions& options, std::string* why_not_cuda);
// The ordinals of "cuda:N" and "cuda:N,M,...", each once; none of any other text.
std::vector<int> CudaOrdinals(absl::string_view kind);
// Whether gpu_worker knows the kind, and those that it knows, in words.
bool IsWorkerDevice(absl::string_view kind);
inline constexpr char kWorkerDevices[] =
    "auto, cuda, cuda:N with N from 0, cuda:N,M with each card once, cuda:all, cpu";
inline constexpr char kAllCards[] = "cuda:all";
// In fp32.
absl::StatusOr<std::unique_ptr<Device>> MakeDevice(absl::string_view kind, int threads,
                                                   std::string* why_not_cuda);

}  // namespace lodestar
