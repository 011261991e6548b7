#include "worker/model/testing/test_devices.h"

#include "common/check.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/emulator/emulator.h"
#include "kernels/device_factory.h"

namespace lodestar {

std::unique_ptr<Device> MakeTestDevice(const std::string& name, int threads) {
  if (name != "cuda-fp32" && name != "cuda-bf16") return *MakeDevice(name, threads, nullptr);
  // Threads and streams in an order that no code may count on.
  emulator::Settings settings;
  settings.threads = emulator::ThreadOrder::kReversed;
  settings.streams = emulator::StreamOrder::kOthersFirst;
  emulator::ClearStickyError();
  emulator::Configure(settings);
  auto device =
      cuda::CudaDevice::Create({.compute = name == "cuda-bf16" ? DType::kBf16 : DType::kF32,
                                .fusion = FusionPolicy::kAlways});
  LODESTAR_CHECK(device.ok()) << device.status().ToString();
  return *std::move(device);
}

}  // namespace lodestar
