// SPDX-License-Identifier: Apache-2.0

// Makes the Device that a process computes on. CUDA is a plugin, liblodestar_cuda.so, so that one
// binary runs with and without it. Nothing here links against CUDA.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/device.h"
#include "kernels/device_set.h"
#include "kernels/factory/cuda_plugin.h"

namespace lodestar::factory {

struct DeviceOptions {
  // `kind` is one of:
  // auto    the first CUDA device if the plugin loads and finds one, else the CPU,
  // cpu     the CPU, which computes in fp32 on `threads` threads,
  // cuda    the first CUDA device, or an error that says why there is none,
  // cuda:N  the CUDA device of ordinal N, or an error,
  // oracle  the reference of the tests, which computes slowly in fp64 on one thread.
  // MakeDevices() also accepts several devices: cuda:all and cuda:N,M,...
  std::string kind = "auto";
  kernels::DType compute =
      kernels::DType::kF32;  // or kBf16, which needs CUDA; the oracle ignores it
  // Used only by the CPU. 0 means one thread per core that this process may use.
  int threads = 0;
  // The options below are used only by CUDA. See CudaPluginOptions.
  FusionPolicy fusion = FusionPolicy::kMeasure;
  bool is_repeatable = true;
  std::optional<std::string> tuning = {};
};

// Makes the device that `options` describe. If `auto` chooses the CPU, *why_not_cuda is set to the
// reason, and otherwise to an empty text. `why_not_cuda` may be null. On a machine without NVIDIA's
// driver, the reason is only that the driver is missing.
// Errors: InvalidArgument (unknown kind, threads out of range, or a dtype that the device cannot
// compute in); NotFound or Unavailable (`cuda` without plugin or device).
absl::StatusOr<std::unique_ptr<kernels::Device>> MakeDevice(const DeviceOptions& options,
                                                            std::string* why_not_cuda);
// Makes one device. If options.kind names several devices, makes all of them, to compute parts of
// each step. Errors: those of MakeDevice() and of Device::MakeGroup().
absl::StatusOr<kernels::DeviceSet> MakeDevices(const DeviceOptions& options,
                                               std::string* why_not_cuda);
// Returns the ordinals in "cuda:N" or "cuda:N,M,...". Returns an empty list for any other text, or
// if an ordinal occurs twice.
std::vector<int> CudaOrdinals(absl::string_view kind);
// Returns true if gpu_worker supports the kind. kWorkerDevices lists these kinds for messages.
bool IsWorkerDevice(absl::string_view kind);
inline constexpr char kWorkerDevices[] =
    "auto, cuda, cuda:N with N from 0, cuda:N,M with each card once, cuda:all, cpu";
inline constexpr char kAllCards[] = "cuda:all";
// Makes a device that computes in fp32.
absl::StatusOr<std::unique_ptr<kernels::Device>> MakeDevice(absl::string_view kind, int threads,
                                                            std::string* why_not_cuda);

}  // namespace lodestar::factory
