// The one symbol that liblodestar_cuda.so exports.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda_plugin.h"

extern "C" __attribute__((visibility("default"))) lodestar::Device* LodestarMakeCudaDevice(
    int version, const lodestar::CudaPluginOptions* options, absl::Status* error) {
  if (version != lodestar::kCudaPluginVersion) {
    *error = absl::UnavailableError(absl::StrCat(
        lodestar::kCudaPluginFile, " is of version ", lodestar::kCudaPluginVersion,
        ", the program asks for ", version, "; install the one that was built with the program"));
    return nullptr;
  }
  absl::StatusOr<std::unique_ptr<lodestar::Device>> device =
      lodestar::cuda::CudaDevice::Create(*options);
  if (!device.ok()) {
    *error = device.status();
    return nullptr;
  }
  return device->release();
}
