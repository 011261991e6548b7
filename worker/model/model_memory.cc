#include "worker/model/model_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lodestar {
namespace {

std::string BytesText(int64_t bytes) {
  if (bytes < 1'000'000) return absl::StrCat(bytes, " bytes");
  if (bytes < 1'000'000'000) return absl::StrFormat("%.1f MB", bytes / 1e6);
  return absl::StrFormat("%.2f GB", bytes / 1e9);
}

}  // namespace

int64_t ModelMemory::LargestBatch(int64_t available_bytes) const {
  const int64_t for_samples = available_bytes - parameter_bytes - fixed_bytes;
  return std::max<int64_t>(0, for_samples / std::max<int64_t>(1, bytes_per_sample));
}

std::string DescribeModelMemory(const ModelMemory& memory, const ModelConfig& config,
                                int64_t other_bytes, const Device& device) {
  std::string text = absl::StrCat(
      "parameters and gradients ", BytesText(memory.parameter_bytes), ", activations ",
      BytesText(memory.bytes_per_sample), " per sample, together ",
      BytesText(memory.BytesFor(config.max_batch)), " at --max_micro_batch=", config.max_batch);
  if (other_bytes > 0) {
    absl::StrAppend(&text, ", local optimizer and encoded contributions ", BytesText(other_bytes));
  }
  const auto device_bytes = static_cast<int64_t>(device.capabilities().memory_bytes);
  if (device_bytes > 0) {
    absl::StrAppend(&text, "; ", BytesText(device_bytes), " are there, for micro-batches of up to ",
                    memory.LargestBatch(device_bytes - other_bytes));
  }
  return text;
}

absl::Status CheckModelFits(const ModelMemory& memory, const ModelConfig& config,
                            int64_t other_bytes, const Device& device) {
  const auto device_bytes = static_cast<int64_t>(device.capabilities().memory_bytes);
  const int64_t wanted = memory.BytesFor(config.max_batch) + other_bytes;
  if (device_bytes == 0 || wanted <= device_bytes) return absl::OkStatus();
  const int64_t largest = memory.LargestBatch(device_bytes - other_bytes);
  return absl::ResourceExhaustedError(absl::StrCat(
      "model ", config.spec.name, " with micro-batches of ", config.max_batch, " samples wants ",
      BytesText(wanted), ", ", device.capabilities().name, " has ", BytesText(device_bytes), "; ",
      largest > 0 ? absl::StrCat("lower --max_micro_batch to ", largest, " or less, or keep")
                  : "not even one sample fits: keep",
      " fewer activations (--recompute=gelu or block)"));
}

}  // namespace lodestar
