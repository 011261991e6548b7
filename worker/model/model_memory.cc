// SPDX-License-Identifier: Apache-2.0

#include "worker/model/model_memory.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/runtime/bytes_text.h"
#include "common/runtime/status_macros.h"
#include "kernels/planned_card.h"

namespace lodestar::model {
namespace {

// Activations get 1 / kMainMemoryParts of the free main memory. See ChooseMicroBatch().
constexpr int64_t kMainMemoryParts = 16;
// 1 / kCardReserveParts of a card's free memory is left to libraries and fragmentation.
constexpr int64_t kCardReserveParts = 20;

std::string SamplesText(int64_t samples) {
  return samples == 1 ? "1 sample" : absl::StrCat(samples, " samples");
}

// Returns the memory that the program itself takes on the device. On a card it is 0, because the
// program is in main memory.
int64_t ProgramBytes(bool memory_is_host) { return memory_is_host ? kProgramBytes : 0; }

// The memory that is available for a model and for the worker's other data.
struct Room {
  int64_t bytes = 0;  // 0 means unknown.
  // For messages: "cpu (avx512, 2 threads) has 512.0 MB (the control group /jobs)".
  std::string text;
};

Room RoomOf(kernels::Device* device) {
  const kernels::DeviceCapabilities& has = device->capabilities();
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

// Returns the bytes that the worker needs on the device, except for the model and for the samples
// of a step.
int64_t RunnerBytes(const OtherMemory& other, bool memory_is_host) {
  return other.device_bytes - (memory_is_host ? other.batch_bytes : 0);
}

// Returns a text with the memory of each part, such as "parameters 6.23 GB, gradients 6.23 GB,
// activations of 8 samples 28.10 GB (3.51 GB each), ...".
std::string PartsText(const ModelMemory& memory, int64_t samples, const OtherMemory& other,
                      bool memory_is_host) {
  std::string text;
  const auto add = [&text](absl::string_view name, int64_t bytes, absl::string_view remark = "") {
    if (bytes == 0) return;
    absl::StrAppend(&text, text.empty() ? "" : ", ", name, " ", BytesText(bytes), remark);
  };
  add("parameters", memory.parameter_bytes - memory.gradient_bytes - memory.narrow_bytes);
  add("gradients", memory.gradient_bytes);
  add("parameters in bf16", memory.narrow_bytes);
  add(absl::StrCat("activations of ", SamplesText(samples)),
      memory.BytesFor(samples) - memory.parameter_bytes - memory.fixed_bytes,
      samples == 1 ? "" : absl::StrCat(" (", BytesText(memory.bytes_per_sample), " each)"));
  add("scratch", memory.fixed_bytes);
  add("local optimizer and weights of the round", other.local_step_bytes);
  add("encodings and error feedback", RunnerBytes(other, memory_is_host) - other.local_step_bytes);
  if (memory_is_host) add("samples of a step", other.batch_bytes);
  add("the program itself", ProgramBytes(memory_is_host));
  return text;
}

// A possible change of flags, of the worker or the job, that saves memory.
struct Change {
  std::vector<std::string> flags;
  ModelMemory memory;
  int64_t other_bytes = 0;

  std::string Text() const { return absl::StrJoin(flags, " "); }
};

// Returns possible changes, the cheapest first:
// - no change, and then more and more recomputation;
// - each of these changes with bf16;
// - each of the changes above without local steps.
//
// Errors: those of EstimateModelMemory().
absl::StatusOr<std::vector<Change>> ChangesOf(const ModelConfig& config, const OtherMemory& other,
                                              kernels::Device* device) {
  kernels::PlannedCard bf16(kernels::DType::kBf16);
  std::vector<kernels::Device*> devices = {device};
  const kernels::DeviceCapabilities& has = device->capabilities();
  if (has.has_bf16 && has.compute == kernels::DType::kF32) devices.push_back(&bf16);
  std::vector<Change> changes;
  for (kernels::Device* const in : devices) {
    int64_t least_per_sample = std::numeric_limits<int64_t>::max();
    for (const Recompute recompute : {Recompute::kNone, Recompute::kGelu, Recompute::kBlock}) {
      if (recompute < config.recompute) continue;
      ModelConfig changed = config;
      changed.recompute = recompute;
      Change change = {.flags = {}, .memory = {}, .other_bytes = other.device_bytes};
      ASSIGN_OR_RETURN(change.memory, EstimateModelMemory(changed, in));
      // Skips a change that saves no memory. Some models have nothing to recompute.
      if (change.memory.bytes_per_sample >= least_per_sample) continue;
      least_per_sample = change.memory.bytes_per_sample;
      if (in != device) change.flags.emplace_back("--dtype=bf16");
      if (recompute != config.recompute) {
        change.flags.push_back(absl::StrCat("--recompute=", RecomputeName(recompute)));
      }
      changes.push_back(std::move(change));
    }
  }
  if (other.local_step_bytes == 0) return changes;
  const size_t num_with_local_steps = changes.size();
  for (size_t i = 0; i < num_with_local_steps; ++i) {
    Change change = changes[i];
    change.flags.emplace_back("--mode=sync of the servers, where workers keep no optimizer");
    change.other_bytes -= other.local_step_bytes;
    changes.push_back(std::move(change));
  }
  return changes;
}

// Returns the changes with which the model would fit, for messages: "--max_micro_batch=3;
// --recompute=block; ...".
absl::StatusOr<std::string> WhatWouldFit(const ModelConfig& config, const OtherMemory& other,
                                         kernels::Device* device, const Room& room,
                                         int64_t wanted) {
  const bool is_host = device->capabilities().memory_is_host;
  ASSIGN_OR_RETURN(const std::vector<Change> changes, ChangesOf(config, other, device));
  std::vector<std::string> ways;
  const Change* least = &changes.front();
  for (const Change& change : changes) {
    const auto bytes_for_one = [](const Change& of) {
      return of.memory.BytesFor(1) + of.other_bytes;
    };
    if (bytes_for_one(change) < bytes_for_one(*least)) least = &change;
    const int64_t largest =
        std::min(LargestMicroBatch(change.memory, change.other_bytes, room.bytes, is_host),
                 config.max_batch);
    if (largest == 0) continue;
    std::vector<std::string> flags = {change.flags};
    if (largest < config.max_batch) {
      flags.insert(flags.begin(), absl::StrCat("--max_micro_batch=", largest));
    }
    ways.push_back(absl::StrJoin(flags, " "));
  }
  const absl::string_view device_word = is_host ? "a machine" : "a card";
  const std::string more = "more servers do not help, because every worker has the whole model";
  if (ways.empty()) {
    return absl::StrCat(
        "not even one sample fits: this model needs at least ",
        BytesText(least->memory.BytesFor(1) + least->other_bytes + ProgramBytes(is_host)),
        ", with --max_micro_batch=1", least->flags.empty() ? "" : " ", least->Text(), "; use ",
        device_word, " with that much free memory, or a smaller model; ", more);
  }
  return absl::StrCat("what fits: ", absl::StrJoin(ways, "; "), "; ", device_word, " with ",
                      BytesText(wanted), " free; ", more);
}

}  // namespace

int64_t ModelMemory::BytesFor(int64_t samples) const {
  // Half of the largest int64_t, so that adding other sizes does not overflow.
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 2;
  const absl::int128 bytes =
      absl::int128(samples) * bytes_per_sample + parameter_bytes + fixed_bytes;
  return bytes > kMost ? kMost : static_cast<int64_t>(bytes);
}

int64_t ModelMemory::LargestBatch(int64_t available_bytes) const {
  const int64_t for_samples = available_bytes - parameter_bytes - fixed_bytes;
  return std::max<int64_t>(0, for_samples / std::max<int64_t>(1, bytes_per_sample));
}

int64_t LargestMicroBatch(const ModelMemory& memory, int64_t other_bytes, int64_t room_bytes,
                          bool memory_is_host) {
  const int64_t reserve = memory_is_host ? kProgramBytes : room_bytes / kCardReserveParts;
  return memory.LargestBatch(room_bytes - reserve - other_bytes);
}

int64_t ChooseMicroBatch(const ModelMemory& memory, const MicroBatchLimits& limits) {
  const int64_t most = std::clamp<int64_t>(limits.largest_share, 1, kMostChosenSamples);
  const int64_t free_bytes = limits.free_bytes;
  if (free_bytes == 0) return most;
  const int64_t fitting =
      limits.memory_is_host
          ? free_bytes / kMainMemoryParts / std::max<int64_t>(1, memory.bytes_per_sample)
          : LargestMicroBatch(memory, limits.other_bytes, free_bytes, /*memory_is_host=*/false);
  return std::clamp<int64_t>(fitting, 1, most);
}

std::string DescribeModelMemory(const ModelMemory& memory, const ModelConfig& config,
                                const OtherMemory& other, kernels::Device* device) {
  std::string text =
      absl::StrCat("parameters and gradients ", BytesText(memory.parameter_bytes), ", activations ",
                   BytesText(memory.bytes_per_sample), " per sample, in all ",
                   BytesText(memory.BytesFor(config.max_batch)),
                   " (with work space, for micro-batches of ", SamplesText(config.max_batch), ")");
  if (other.local_step_bytes > 0) {
    absl::StrAppend(&text, ", local optimizer and weights of the round ",
                    BytesText(other.local_step_bytes));
  }
  const int64_t encoding_bytes =
      RunnerBytes(other, device->capabilities().memory_is_host) - other.local_step_bytes;
  if (encoding_bytes > 0) {
    absl::StrAppend(&text, ", encodings and error feedback ", BytesText(encoding_bytes));
  }
  if (other.batch_bytes > 0) {
    absl::StrAppend(&text, ", samples of a step ", BytesText(other.batch_bytes), " of main memory");
  }
  if (!device->capabilities().memory_is_host) {
    absl::StrAppend(
        &text, ", pinned host memory ",
        BytesText(memory.pinned_bytes_per_sample * config.max_batch + other.pinned_bytes));
    if (other.most_shared_bytes > 0) {
      absl::StrAppend(&text, " and up to ", BytesText(other.most_shared_bytes),
                      " shared with servers of this machine");
    }
  }
  const Room room = RoomOf(device);
  if (room.bytes > 0) {
    const int64_t largest = LargestMicroBatch(memory, other.device_bytes, room.bytes,
                                              device->capabilities().memory_is_host);
    absl::StrAppend(&text, "; ", room.text);
    if (largest > 0) {
      absl::StrAppend(&text, "; the largest --max_micro_batch that fits is ", largest);
    }
  }
  return text;
}

absl::Status CheckModelFits(const ModelMemory& memory, const ModelConfig& config,
                            const OtherMemory& other, kernels::Device* device) {
  const Room room = RoomOf(device);
  const bool is_host = device->capabilities().memory_is_host;
  const int64_t wanted =
      memory.BytesFor(config.max_batch) + other.device_bytes + ProgramBytes(is_host);
  if (room.bytes == 0 || wanted <= room.bytes) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::string what_would_fit, WhatWouldFit(config, other, device, room, wanted));
  if (is_host && other.batch_bytes > wanted / 2) {
    absl::StrAppend(
        &what_would_fit,
        "; or give the servers a smaller --batch_size, so that a step has fewer samples");
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      params::ModelInWords(config.spec.name), " with micro-batches of ",
      SamplesText(config.max_batch), " needs ", BytesText(wanted), " (",
      PartsText(memory, config.max_batch, other, is_host), "), ", room.text, "; ", what_would_fit));
}

}  // namespace lodestar::model
