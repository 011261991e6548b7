#include "kernels/device_factory.h"

#include <sched.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cuda_plugin.h"
#include "kernels/oracle/oracle_device.h"

namespace lodestar {
namespace {

constexpr int kMaxThreads = 1024;

int UsableCores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return std::max(1, CPU_COUNT(&cores));
}

absl::StatusOr<std::unique_ptr<Device>> MakeCpu(int threads) {
  if (threads < 0 || threads > kMaxThreads) {
    return absl::InvalidArgumentError(absl::StrCat("the cpu device was asked for ", threads,
                                                   " threads; give 0 (one per core) to ",
                                                   kMaxThreads));
  }
  return MakeCpuDevice(threads == 0 ? UsableCores() : threads);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(absl::string_view kind, int threads,
                                                   std::string* why_not_cuda) {
  if (why_not_cuda != nullptr) why_not_cuda->clear();
  if (kind == "cpu") return MakeCpu(threads);
  if (kind == "oracle") return MakeOracleDevice();
  if (kind != "cuda" && kind != "auto") {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no device \"", kind, "\"; use auto, cpu, cuda or oracle"));
  }
  absl::StatusOr<std::unique_ptr<Device>> cuda = LoadCudaDevice();
  if (cuda.ok() || kind == "cuda") return cuda;
  if (why_not_cuda != nullptr) *why_not_cuda = std::string(cuda.status().message());
  return MakeCpu(threads);
}

}  // namespace lodestar
