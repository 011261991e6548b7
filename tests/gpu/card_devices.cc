// The devices of the model tests, with CUDA on a real card.
#include "common/check.h"
#include "kernels/device_factory.h"
#include "worker/model/testing/test_devices.h"

namespace lodestar {

std::unique_ptr<Device> MakeTestDevice(const std::string& name, int threads) {
  DeviceOptions options{.kind = name, .threads = threads};
  if (name == "cuda-fp32" || name == "cuda-bf16") {
    options.kind = "cuda";
    options.compute = name == "cuda-bf16" ? DType::kBf16 : DType::kF32;
  }
  auto device = MakeDevice(options, /*why_not_cuda=*/nullptr);
  LODESTAR_CHECK(device.ok()) << device.status().ToString();
  return *std::move(device);
}

}  // namespace lodestar
