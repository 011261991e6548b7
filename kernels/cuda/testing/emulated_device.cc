#include "kernels/cuda/testing/emulated_device.h"

#include <utility>

#include "common/check.h"
#include "kernels/cuda/cuda_device.h"

namespace lodestar::cuda {

std::unique_ptr<Device> MakeEmulatedDevice(const CudaPluginOptions& options,
                                           const emulator::Settings& settings) {
  emulator::ClearStickyError();
  emulator::Configure(settings);
  auto device = CudaDevice::Create(options);
  LODESTAR_CHECK(device.ok()) << device.status().ToString();
  return *std::move(device);
}

}  // namespace lodestar::cuda
