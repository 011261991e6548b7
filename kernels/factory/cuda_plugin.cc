// SPDX-License-Identifier: Apache-2.0

#include "kernels/factory/cuda_plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <unistd.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/factory/python_environment.h"

namespace lodestar::factory {
namespace {

constexpr char kCublasLtFile[] = "libcublasLt.so.13";
constexpr char kPythonCudaFolder[] = "nvidia/cu13/lib/";  // below the folder of Python's packages
constexpr char kCudaDriverFile[] = "libcuda.so.1";        // comes with the driver, not with CUDA

// Returns the folder of this executable, or "" if /proc is not mounted.
std::string ExecutableFolder() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  if (length <= 0) return "";
  const std::string executable(path, length);
  return executable.substr(0, executable.rfind('/'));
}

// Loads a library. On failure, returns null and appends the loader's error message to *tried.
void* TryLoad(const std::string& path, std::string* tried) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) absl::StrAppend(tried, tried->empty() ? "" : "; ", dlerror());
  return library;
}

void* TryLoadPlugin(std::string* tried) {
  const std::string folder = ExecutableFolder();
  void* library = nullptr;
  if (!folder.empty()) library = TryLoad(absl::StrCat(folder, "/", kCudaPluginFile), tried);
  return library != nullptr ? library : TryLoad(kCudaPluginFile, tried);
}

// Returns the function that the plugin exports as `name`.
template <typename EntryPoint>
absl::StatusOr<EntryPoint> FindEntryPoint(const char* name) {
  std::string tried;
  void* library = TryLoadPlugin(&tried);
  // The plugin exists, but needs cuBLASLt, which the loader does not find.
  if (library == nullptr && absl::StrContains(tried, kCublasLtFile)) {
    if (const auto cublas = LoadLibrary(kCublasLtFile, kPythonCudaFolder); cublas.ok()) {
      library = TryLoadPlugin(&tried);
    } else {
      absl::StrAppend(&tried, "; ", cublas.status().message());
    }
  }
  if (library == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("the CUDA plugin ", kCudaPluginFile, " was not loaded: ", tried,
                     "; put it beside the executable or use the cpu device"));
  }
  const auto entry_point = reinterpret_cast<EntryPoint>(dlsym(library, name));
  if (entry_point == nullptr) {
    return absl::UnavailableError(absl::StrCat("the CUDA plugin has no entry point ", name,
                                               "; install the one built with this binary"));
  }
  return entry_point;
}

absl::Status NoDevice(const absl::Status& error) {
  if (!HasCudaDriver()) {
    return absl::UnavailableError(
        absl::StrCat("no CUDA device: this machine has no NVIDIA driver (", kCudaDriverFile, ")"));
  }
  return absl::Status(error.code(), absl::StrCat("no CUDA device: ", error.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<kernels::Device>> LoadCudaDevice(const CudaPluginOptions& options) {
  const absl::StatusOr<CudaPluginEntryPoint> make =
      FindEntryPoint<CudaPluginEntryPoint>(kCudaPluginEntryPoint);
  if (!make.ok()) return make.status();
  absl::Status error;
  std::unique_ptr<kernels::Device> device((*make)(kCudaPluginVersion, &options, &error));
  if (device == nullptr) return NoDevice(error);
  return device;
}

bool HasCudaDriver() {
  void* driver = dlopen(kCudaDriverFile, RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) return false;
  dlclose(driver);
  return true;
}

absl::StatusOr<int> CountCudaDevices() {
  const absl::StatusOr<CudaPluginCountEntryPoint> count =
      FindEntryPoint<CudaPluginCountEntryPoint>(kCudaPluginCountEntryPoint);
  if (!count.ok()) return count.status();
  absl::Status error;
  const int devices = (*count)(kCudaPluginVersion, &error);
  if (!error.ok()) return NoDevice(error);
  return devices;
}

}  // namespace lodestar::factory
