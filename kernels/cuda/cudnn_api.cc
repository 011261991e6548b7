// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/cudnn_api.h"

#include <dlfcn.h>

#include <type_traits>

#include "absl/strings/str_cat.h"
#include "kernels/factory/python_environment.h"

namespace lodestar::cuda {
namespace {

constexpr char kFile[] = "libcudnn.so.9";
// Folder in NVIDIA's Python packages, which are installed with PyTorch.
constexpr char kPythonFolder[] = "nvidia/cudnn/lib/";
// The first version for CUDA 13, in the form of cudnnGetVersion().
constexpr size_t kOldestVersion = 91200;
constexpr int kMajor = 10000, kMinor = 100;

std::string VersionName(size_t version) {
  return absl::StrCat(version / kMajor, ".", version % kMajor / kMinor, ".", version % kMinor);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const CudnnApi>> LoadCudnn() {
  const absl::StatusOr<void*> library = factory::LoadLibrary(kFile, kPythonFolder);
  if (!library.ok()) {
    return absl::NotFoundError(
        absl::StrCat("cuDNN cannot be loaded: ", library.status().message()));
  }
  auto api = std::make_shared<CudnnApi>();
  const char* missing = nullptr;
  const auto find = [&](auto* function, const char* name) {
    *function =
        reinterpret_cast<std::remove_reference_t<decltype(*function)>>(dlsym(*library, name));
    if (*function == nullptr) missing = name;
  };
  find(&api->get_version, "cudnnGetVersion");
  find(&api->get_error_string, "cudnnGetErrorString");
  find(&api->get_last_error_string, "cudnnGetLastErrorString");
  find(&api->create, "cudnnCreate");
  find(&api->destroy, "cudnnDestroy");
  find(&api->set_stream, "cudnnSetStream");
  find(&api->create_descriptor, "cudnnBackendCreateDescriptor");
  find(&api->destroy_descriptor, "cudnnBackendDestroyDescriptor");
  find(&api->finalize, "cudnnBackendFinalize");
  find(&api->set_attribute, "cudnnBackendSetAttribute");
  find(&api->get_attribute, "cudnnBackendGetAttribute");
  find(&api->execute, "cudnnBackendExecute");
  if (missing != nullptr) {
    return absl::UnimplementedError(absl::StrCat(kFile, " has no function ", missing));
  }
  if (api->get_version() < kOldestVersion) {
    return absl::UnimplementedError(absl::StrCat(CudnnName(*api), " is too old, ",
                                                 VersionName(kOldestVersion), " is the oldest"));
  }
  return api;
}

std::string CudnnName(const CudnnApi& api) {
  return absl::StrCat("cuDNN ", VersionName(api.get_version()));
}

absl::Status CudnnStatus(const CudnnApi& api, cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  char why[512] = "";
  api.get_last_error_string(why, sizeof(why));
  const bool is_unsupported = CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED;
  return absl::Status(
      is_unsupported ? absl::StatusCode::kUnimplemented : absl::StatusCode::kInternal,
      absl::StrCat(call, ": ", api.get_error_string(status), why[0] == '\0' ? "" : ": ", why));
}

}  // namespace lodestar::cuda
