// Devices by name, with the CUDA device on its emulated card.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "common/params/model_spec.h"
#include "kernels/device.h"
#include "kernels/device_set.h"
#include "kernels/factory/cuda_plugin.h"

namespace lodestar::model {

// "cuda-" and, of the compute dtype and the fusion, "fp32-never", "fp32-always", "bf16-never" or
// "bf16-always". Choices that are measured may differ between two runs, and so may last bits: they
// are for no test that compares runs.
inline constexpr const char* kCudaTestDevices[] = {"cuda-fp32-never", "cuda-fp32-always",
                                                   "cuda-bf16-never", "cuda-bf16-always"};

struct CudaTestDevice {
  kernels::DType compute;
  factory::FusionPolicy fusion;
};

// Nothing for a name that is none of these.
inline std::optional<CudaTestDevice> CudaTestDeviceOf(absl::string_view name) {
  if (!absl::StartsWith(name, "cuda-")) return std::nullopt;
  return CudaTestDevice{
      .compute = absl::StrContains(name, "bf16") ? kernels::DType::kBf16 : kernels::DType::kF32,
      .fusion = absl::EndsWith(name, "always") ? factory::FusionPolicy::kAlways
                                               : factory::FusionPolicy::kNever};
}

// "cpu", "oracle", or one of kCudaTestDevices, of which there may be one at a time; `threads` are
// those of the CPU.
std::unique_ptr<kernels::Device> MakeTestDevice(const std::string& name, int threads);

// So many cards in fp32 that compute parts of one step, without fusion; one real card may be
// several of them.
kernels::DeviceSet MakeTestCards(int count);

// Models that are too large to be trained on the emulated card, but not on this one.
std::vector<ModelSpec> SpecsOfTestCards();

}  // namespace lodestar::model
