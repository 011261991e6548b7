#include "worker/model/testing/test_devices.h"

#include "kernels/cuda/testing/emulated_device.h"
#include "kernels/factory/device_factory.h"

namespace lodestar {

std::unique_ptr<Device> MakeTestDevice(const std::string& name, int threads) {
  const std::optional<CudaTestDevice> cuda = CudaTestDeviceOf(name);
  if (!cuda.has_value()) return *MakeDevice(name, threads, nullptr);
  // Threads and streams in an order that no code may count on.
  emulator::Settings settings;
  settings.threads = emulator::ThreadOrder::kReversed;
  settings.streams = emulator::StreamOrder::kOthersFirst;
  return cuda::MakeEmulatedDevice({.compute = cuda->compute, .fusion = cuda->fusion}, settings);
}

DeviceSet MakeTestCards(int count) {
  return cuda::MakeEmulatedDevices(
      {.fusion = FusionPolicy::kNever},
      {.streams = emulator::StreamOrder::kOthersFirst, .num_devices = count});
}

std::vector<ModelSpec> SpecsOfTestCards() { return {}; }

}  // namespace lodestar
