// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/testing/emulated_device.h"

#include <utility>
#include <vector>

#include "common/runtime/check.h"
#include "kernels/cuda/cuda_device.h"

namespace lodestar::cuda {

std::unique_ptr<kernels::Device> MakeEmulatedDevice(const factory::CudaPluginOptions& options,
                                                    const emulator::Settings& settings) {
  emulator::ClearStickyError();
  emulator::Configure(settings);
  auto device = CudaDevice::Create(options);
  LODESTAR_CHECK(device.ok()) << device.status().ToString();
  return *std::move(device);
}

kernels::DeviceSet MakeEmulatedDevices(const factory::CudaPluginOptions& options,
                                       const emulator::Settings& settings, NcclLoader load_nccl) {
  emulator::ClearStickyError();
  emulator::Configure(settings);
  kernels::DeviceSet set;
  std::vector<kernels::Device*> members;
  for (int ordinal = 0; ordinal < settings.num_devices; ++ordinal) {
    factory::CudaPluginOptions one = options;
    one.ordinal = ordinal;
    auto device = CudaDevice::Create(one, {.load_nccl = load_nccl});
    LODESTAR_CHECK(device.ok()) << device.status().ToString();
    members.push_back(set.devices.emplace_back(*std::move(device)).get());
  }
  auto group = set.first().MakeGroup(members);
  LODESTAR_CHECK(group.ok()) << group.status().ToString();
  set.group = *std::move(group);
  return set;
}

}  // namespace lodestar::cuda
