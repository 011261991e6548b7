// SPDX-License-Identifier: Apache-2.0

#include "worker/model/testing/test_devices.h"

#include "kernels/cuda/testing/emulated_device.h"
#include "kernels/factory/device_factory.h"

namespace lodestar::model {

std::unique_ptr<kernels::Device> MakeTestDevice(const std::string& name, int threads) {
  const std::optional<CudaTestDevice> cuda = CudaTestDeviceOf(name);
  if (!cuda.has_value()) return *factory::MakeDevice(name, threads, nullptr);
  // Runs threads and streams in an unusual order. If code depends on the order, its tests fail.
  emulator::Settings settings;
  settings.threads = emulator::ThreadOrder::kReversed;
  settings.streams = emulator::StreamOrder::kOthersFirst;
  return cuda::MakeEmulatedDevice({.compute = cuda->compute, .fusion = cuda->fusion}, settings);
}

kernels::DeviceSet MakeTestCards(int count) {
  return cuda::MakeEmulatedDevices(
      {.fusion = factory::FusionPolicy::kNever},
      {.streams = emulator::StreamOrder::kOthersFirst, .num_devices = count});
}

std::vector<params::ModelSpec> SpecsOfTestCards() { return {}; }

}  // namespace lodestar::model
