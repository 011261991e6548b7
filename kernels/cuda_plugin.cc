#include "kernels/cuda_plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <unistd.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lodestar {
namespace {

constexpr char kCudaDriverFile[] = "libcuda.so.1";  // comes with the driver, not with CUDA

// Empty where /proc is not mounted.
std::string ExecutableFolder() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  if (length <= 0) return "";
  const std::string executable(path, length);
  return executable.substr(0, executable.rfind('/'));
}

// Returns null and appends the loader's reason to *tried if it cannot be loaded.
void* TryLoad(const std::string& path, std::string* tried) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) absl::StrAppend(tried, tried->empty() ? "" : "; ", dlerror());
  return library;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> LoadCudaDevice(const CudaPluginOptions& options) {
  std::string tried;
  void* library = nullptr;
  const std::string folder = ExecutableFolder();
  if (!folder.empty()) library = TryLoad(absl::StrCat(folder, "/", kCudaPluginFile), &tried);
  if (library == nullptr) library = TryLoad(kCudaPluginFile, &tried);
  if (library == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("the CUDA plugin ", kCudaPluginFile, " was not loaded: ", tried,
                     "; put it beside the executable or use the cpu device"));
  }
  auto make = reinterpret_cast<CudaPluginEntryPoint>(dlsym(library, kCudaPluginEntryPoint));
  if (make == nullptr) {
    return absl::UnavailableError(absl::StrCat("the CUDA plugin has no entry point ",
                                               kCudaPluginEntryPoint,
                                               "; install the one built with this binary"));
  }
  absl::Status error;
  std::unique_ptr<Device> device(make(kCudaPluginVersion, &options, &error));
  if (device == nullptr) {
    return absl::Status(error.code(), absl::StrCat("no CUDA device: ", error.message()));
  }
  return device;
}

bool HasCudaDriver() {
  void* driver = dlopen(kCudaDriverFile, RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) return false;
  dlclose(driver);
  return true;
}

}  // namespace lodestar
