// SPDX-License-Identifier: Apache-2.0

#include "kernels/factory/device_factory.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/machine/usable_cores.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/factory/cuda_plugin.h"
#include "kernels/oracle/oracle_device.h"

namespace lodestar::factory {
namespace {

constexpr int kMaxThreads = 1024;

absl::StatusOr<std::unique_ptr<kernels::Device>> MakeCpu(const DeviceOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return absl::InvalidArgumentError(absl::StrCat("the cpu device was asked for ", options.threads,
                                                   " threads; give 0 (one per usable core) to ",
                                                   kMaxThreads));
  }
  if (options.compute != kernels::DType::kF32) {
    return absl::InvalidArgumentError(
        "the cpu device computes in fp32 only: bf16 needs CUDA; use fp32 or the cuda device");
  }
  return cpu::MakeCpuDevice(options.threads == 0 ? machine::UsableCores() : options.threads);
}

// Returns the ordinal of the card that `kind` names. -1 means that `kind` does not name a single
// card.
int CudaOrdinal(absl::string_view kind) {
  if (kind == "cuda") return 0;
  const std::vector<int> ordinals = CudaOrdinals(kind);
  return ordinals.size() == 1 ? ordinals.front() : -1;
}

absl::StatusOr<std::vector<int>> CardsOf(const std::string& kind) {
  if (kind != kAllCards) return CudaOrdinals(kind);
  const absl::StatusOr<int> count = CountCudaDevices();
  if (!count.ok()) return count.status();
  std::vector<int> all(*count);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

absl::StatusOr<kernels::DeviceSet> MakeGroup(
    std::vector<std::unique_ptr<kernels::Device>> devices) {
  std::vector<kernels::Device*> members;
  for (const std::unique_ptr<kernels::Device>& device : devices) members.push_back(device.get());
  absl::StatusOr<std::unique_ptr<kernels::DeviceGroup>> group = members.front()->MakeGroup(members);
  if (!group.ok()) return group.status();
  return kernels::DeviceSet{.devices = std::move(devices), .group = *std::move(group)};
}

}  // namespace

std::vector<int> CudaOrdinals(absl::string_view kind) {
  if (!absl::ConsumePrefix(&kind, "cuda:")) return {};
  std::vector<int> ordinals;
  for (absl::string_view text : absl::StrSplit(kind, ',')) {
    int ordinal = -1;
    if (!absl::SimpleAtoi(text, &ordinal) || ordinal < 0) return {};
    if (std::find(ordinals.begin(), ordinals.end(), ordinal) != ordinals.end()) return {};
    ordinals.push_back(ordinal);
  }
  return ordinals;
}

absl::StatusOr<std::unique_ptr<kernels::Device>> MakeDevice(const DeviceOptions& options,
                                                            std::string* why_not_cuda) {
  if (why_not_cuda != nullptr) why_not_cuda->clear();
  if (options.kind == "cpu") return MakeCpu(options);
  if (options.kind == "oracle") return oracle::MakeOracleDevice();
  const bool is_auto = options.kind == "auto";
  const int ordinal = is_auto ? 0 : CudaOrdinal(options.kind);
  if (ordinal < 0) {
    return absl::InvalidArgumentError(absl::StrCat("there is no device \"", options.kind,
                                                   "\"; use auto, cpu, cuda, cuda:N or oracle"));
  }
  absl::StatusOr<std::unique_ptr<kernels::Device>> cuda =
      LoadCudaDevice({.ordinal = ordinal,
                      .compute = options.compute,
                      .fusion = options.fusion,
                      .is_repeatable = options.is_repeatable,
                      .tuning = options.tuning});
  if (cuda.ok() || !is_auto) return cuda;
  // If there is a card but it cannot compute in this dtype, the caller gets the error. The CPU is
  // not used instead.
  if (absl::IsInvalidArgument(cuda.status())) return cuda;
  if (options.compute != kernels::DType::kF32) {
    return absl::InvalidArgumentError(
        absl::StrCat("bf16 needs CUDA, and ", cuda.status().message(), "; use fp32"));
  }
  if (why_not_cuda != nullptr) {
    *why_not_cuda = HasCudaDriver() ? std::string(cuda.status().message())
                                    : "this machine has no NVIDIA driver";
  }
  return MakeCpu(options);
}

bool IsWorkerDevice(absl::string_view kind) {
  return kind == "auto" || kind == "cpu" || kind == "cuda" || kind == kAllCards ||
         !CudaOrdinals(kind).empty();
}

absl::StatusOr<kernels::DeviceSet> MakeDevices(const DeviceOptions& options,
                                               std::string* why_not_cuda) {
  const absl::StatusOr<std::vector<int>> cards = CardsOf(options.kind);
  if (!cards.ok()) return cards.status();
  DeviceOptions one = options;
  std::vector<std::unique_ptr<kernels::Device>> devices;
  for (const int ordinal : *cards) {
    one.kind = absl::StrCat("cuda:", ordinal);
    absl::StatusOr<std::unique_ptr<kernels::Device>> device = MakeDevice(one, why_not_cuda);
    if (!device.ok()) return device.status();
    devices.push_back(*std::move(device));
  }
  if (devices.size() > 1) return MakeGroup(std::move(devices));
  if (devices.empty()) {
    absl::StatusOr<std::unique_ptr<kernels::Device>> device = MakeDevice(options, why_not_cuda);
    if (!device.ok()) return device.status();
    devices.push_back(*std::move(device));
  }
  return kernels::DeviceSet{.devices = std::move(devices)};
}

absl::StatusOr<std::unique_ptr<kernels::Device>> MakeDevice(absl::string_view kind, int threads,
                                                            std::string* why_not_cuda) {
  return MakeDevice({.kind = std::string(kind), .threads = threads}, why_not_cuda);
}

}  // namespace lodestar::factory
