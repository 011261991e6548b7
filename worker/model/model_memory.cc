#include "worker/model/model_memory.h"

#include <algorithm>
#include <limits>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "common/bytes_text.h"

namespace lodestar {
namespace {

// See ChooseMicroBatch().
constexpr int64_t kMainMemoryParts = 16;
// Of a card's free memory a twentieth is left to libraries and fragmentation.
constexpr int64_t kCardReserveParts = 20;

std::string SamplesText(int64_t samples) {
  return samples == 1 ? "1 sample" : absl::StrCat(samples, " samples");
}

// What there is for a model and what belongs to it.
struct Room {
  int64_t bytes = 0;  // 0: unknown
  std::string text;   // "cpu (avx512, 2 threads) has 512.0 MB (the control group /jobs)"
};

Room RoomOf(Device* device) {
  const DeviceCapabilities& has = device->capabilities();
  Room room = {
      .bytes = static_cast<int64_t>(has.memory_bytes),
      .text = absl::StrCat(has.name, " has ", BytesText(static_cast<int64_t>(has.memory_bytes)))};
  if (!has.memory_limited_by.empty()) absl::StrAppend(&room.text, " (", has.memory_limited_by, ")");
  if (has.memory_is_host) return room;
  const auto free_bytes = static_cast<int64_t>(device->FreeMemoryBytes());
  if (free_bytes == 0) return room;
  room.bytes = free_bytes;
  absl::StrAppend(&room.text, ", ", BytesText(free_bytes), " of them free");
  return room;
}

}  // namespace

int64_t ModelMemory::BytesFor(int64_t samples) const {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 2;  // others are added
  const absl::int128 bytes =
      absl::int128(samples) * bytes_per_sample + parameter_bytes + fixed_bytes;
  return bytes > kMost ? kMost : static_cast<int64_t>(bytes);
}

int64_t ModelMemory::LargestBatch(int64_t available_bytes) const {
  const int64_t for_samples = available_bytes - parameter_bytes - fixed_bytes;
  return std::max<int64_t>(0, for_samples / std::max<int64_t>(1, bytes_per_sample));
}

int64_t ChooseMicroBatch(const ModelMemory& memory, const MicroBatchLimits& limits) {
  const int64_t most = std::clamp<int64_t>(limits.largest_share, 1, kMostChosenSamples);
  const int64_t free_bytes = limits.free_bytes;
  if (free_bytes == 0) return most;
  const int64_t fitting =
      limits.memory_is_host
          ? free_bytes / kMainMemoryParts / std::max<int64_t>(1, memory.bytes_per_sample)
          : memory.LargestBatch(free_bytes - free_bytes / kCardReserveParts - limits.other_bytes);
  return std::clamp<int64_t>(fitting, 1, most);
}

std::string DescribeModelMemory(const ModelMemory& memory, const ModelConfig& config,
                                const OtherMemory& other, Device* device) {
  std::string text =
      absl::StrCat("parameters and gradients ", BytesText(memory.parameter_bytes), ", activations ",
                   BytesText(memory.bytes_per_sample), " per sample, together ",
                   BytesText(memory.BytesFor(config.max_batch)), " with micro-batches of ",
                   SamplesText(config.max_batch));
  if (other.device_bytes > 0) {
    absl::StrAppend(&text, ", local optimizer and encoded contributions ",
                    BytesText(other.device_bytes));
  }
  if (!device->capabilities().memory_is_host) {
    absl::StrAppend(
        &text, ", pinned host memory ",
        BytesText(memory.pinned_bytes_per_sample * config.max_batch + other.pinned_bytes));
  }
  const Room room = RoomOf(device);
  if (room.bytes > 0) {
    const int64_t largest = memory.LargestBatch(room.bytes - other.device_bytes);
    absl::StrAppend(&text, "; ", room.text);
    if (largest > 0) absl::StrAppend(&text, ", for --max_micro_batch of up to ", largest);
  }
  return text;
}

absl::Status CheckModelFits(const ModelMemory& memory, const ModelConfig& config,
                            const OtherMemory& other, Device* device) {
  const Room room = RoomOf(device);
  const int64_t wanted = memory.BytesFor(config.max_batch) + other.device_bytes;
  if (room.bytes == 0 || wanted <= room.bytes) return absl::OkStatus();
  const int64_t largest = memory.LargestBatch(room.bytes - other.device_bytes);
  return absl::ResourceExhaustedError(absl::StrCat(
      "model ", config.spec.name, " with micro-batches of ", SamplesText(config.max_batch),
      " wants ", BytesText(wanted), ", ", room.text, "; ",
      largest > 0 ? absl::StrCat("lower --max_micro_batch to ", largest, " or less, or keep")
                  : "not even one sample fits: use a device with more memory, or keep",
      " fewer activations (--recompute=gelu or block)"));
}

}  // namespace lodestar
