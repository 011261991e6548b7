// SPDX-License-Identifier: Apache-2.0

// The symbols that liblodestar_cuda.so exports.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/attention_library_factory.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/nccl.h"
#include "kernels/factory/cuda_plugin.h"

namespace {

absl::Status CheckVersion(int version) {
  if (version == lodestar::factory::kCudaPluginVersion) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      lodestar::factory::kCudaPluginFile, " is of version ", lodestar::factory::kCudaPluginVersion,
      ", the program asks for ", version, "; install the one that was built with the program"));
}

}  // namespace

extern "C" __attribute__((visibility("default"))) lodestar::kernels::Device* LodestarMakeCudaDevice(
    int version, const lodestar::factory::CudaPluginOptions* options, absl::Status* error) {
  if (*error = CheckVersion(version); !error->ok()) return nullptr;
  absl::StatusOr<std::unique_ptr<lodestar::kernels::Device>> device =
      lodestar::cuda::CudaDevice::Create(*options,
                                         {.load_attention = lodestar::cuda::LoadAttentionLibrary,
                                          .load_nccl = lodestar::cuda::LoadNccl});
  if (!device.ok()) {
    *error = device.status();
    return nullptr;
  }
  return device->release();
}

extern "C" __attribute__((visibility("default"))) int LodestarCountCudaDevices(
    int version, absl::Status* error) {
  if (*error = CheckVersion(version); !error->ok()) return 0;
  const absl::StatusOr<int> count = lodestar::cuda::CudaDevice::Count();
  *error = count.status();
  return count.value_or(0);
}
