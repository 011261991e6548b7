// SPDX-License-Identifier: Apache-2.0

// Makes devices by name, for tests. The CUDA device runs on its emulated card.
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

// Each name says the compute dtype and whether kernels are fused. No device measures whether fused
// kernels are faster: the last bits of its results could then differ between two runs.
inline constexpr const char* kCudaTestDevices[] = {"cuda-fp32-never", "cuda-fp32-always",
                                                   "cuda-bf16-never", "cuda-bf16-always"};

struct CudaTestDevice {
  kernels::DType compute;
  factory::FusionPolicy fusion;
};

// Returns nullopt if the name does not begin with "cuda-".
inline std::optional<CudaTestDevice> CudaTestDeviceOf(absl::string_view name) {
  if (!absl::StartsWith(name, "cuda-")) return std::nullopt;
  return CudaTestDevice{
      .compute = absl::StrContains(name, "bf16") ? kernels::DType::kBf16 : kernels::DType::kF32,
      .fusion = absl::EndsWith(name, "always") ? factory::FusionPolicy::kAlways
                                               : factory::FusionPolicy::kNever};
}

// Returns the device "cpu", "oracle" or one of kCudaTestDevices. There may be only one CUDA device
// at a time. `threads` is the number of threads of the CPU.
std::unique_ptr<kernels::Device> MakeTestDevice(const std::string& name, int threads);

// Returns `count` cards that compute parts of one step, in fp32 and without fusion. If there are
// not enough real cards, the same card is used several times.
kernels::DeviceSet MakeTestCards(int count);

// Returns additional models for tests on real cards. They are too large for the emulated card, so
// the list is empty if the card is emulated.
std::vector<params::ModelSpec> SpecsOfTestCards();

}  // namespace lodestar::model
