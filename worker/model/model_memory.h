// SPDX-License-Identifier: Apache-2.0

// Computes how much device memory, and host memory for copies, a model takes before it is
// allocated.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "worker/model/model.h"

namespace lodestar::model {

struct ModelMemory {
  // Bytes of the values, the gradients and, with bf16, the narrow parameters.
  int64_t parameter_bytes = 0;
  int64_t gradient_bytes = 0;    // The part of parameter_bytes for gradients.
  int64_t narrow_bytes = 0;      // The part of parameter_bytes for narrow parameters.
  int64_t fixed_bytes = 0;       // Workspaces for activations.
  int64_t bytes_per_sample = 0;  // Activations.
  // Pinned host memory per sample, in bytes, for copies to and from the device.
  int64_t pinned_bytes_per_sample = 0;
  // Host memory per sample, in bytes, for reading the samples of a whole step.
  int64_t batch_bytes_per_sample = 0;

  // Returns the bytes that the model takes with micro-batches of `samples` samples. It is at most
  // half of the largest int64_t.
  int64_t BytesFor(int64_t samples) const;
  // Returns the largest micro-batch, in samples, that fits into `available_bytes`. 0 means that
  // none fits.
  int64_t LargestBatch(int64_t available_bytes) const;
};

// Computes the memory of a model. Errors: those of BuildLayout(); InvalidArgument (if the model is
// one that programs compute themselves).
absl::StatusOr<ModelMemory> EstimateModelMemory(const ModelConfig& config, kernels::Device* device);

// Returns the largest micro-batch, in samples, that fits into `room_bytes` besides `other_bytes`. 0
// means that none fits. In main memory, kProgramBytes are left to the program. On a card, a reserve
// is left for libraries and fragmentation.
int64_t LargestMicroBatch(const ModelMemory& memory, int64_t other_bytes, int64_t room_bytes,
                          bool memory_is_host);

// The limits of a micro-batch.
struct MicroBatchLimits {
  int64_t largest_share = 1;  // Samples of one step.
  int64_t free_bytes = 0;     // Free device memory. 0 means unknown.
  // The part of free_bytes that other data will take.
  int64_t other_bytes = 0;
  bool memory_is_host = true;
};

inline constexpr int64_t kMostChosenSamples = 64;
// Main memory that a worker needs besides its model and samples. With gpt-nano and gpt-mini, a
// worker took 92 to 99 MB of its own, and 8 to 25 MB that it shared with its servers.
inline constexpr int64_t kProgramBytes = 128'000'000;

// If the user has not set the micro-batch, chooses the largest that fits, in samples. The result is
// at least 1, and at most the largest share and kMostChosenSamples.
//
// In main memory, activations get only a sixteenth of the free memory, because servers and other
// workers use main memory too. Larger micro-batches are not faster on a CPU: gpt-mini trains as
// fast with 4 samples as with 64, in a tenth of the memory.
int64_t ChooseMicroBatch(const ModelMemory& memory, const MicroBatchLimits& limits);

// Memory that a worker needs besides its model.
struct OtherMemory {
  int64_t device_bytes = 0;
  // The part of device_bytes for local steps: the state of the inner optimizer, and the weights at
  // the start of a round.
  int64_t local_step_bytes = 0;
  // Size of the samples of a step. If the device's memory is host memory, device_bytes includes it.
  int64_t batch_bytes = 0;
  // Size of pinned host memory. 0 if the device's memory is host memory.
  int64_t pinned_bytes = 0;
  // Size of the memory shared with servers if all servers are on this machine. This memory is
  // pinned as well.
  int64_t most_shared_bytes = 0;
};

// Returns one line for the log: the memory of model and micro-batch, and the largest micro-batch
// that fits into the device together with `other`. Requires: nothing of `other` is allocated yet.
std::string DescribeModelMemory(const ModelMemory& memory, const ModelConfig& config,
                                const OtherMemory& other, kernels::Device* device);

// Checks that the model fits into the device. Returns OK if the size of the device's memory is not
// known.
// - On a card, only free memory counts, because other processes do not give their memory back.
// - In main memory, all memory counts, because other processes may give their memory back.
//
// Errors: ResourceExhausted naming the bytes wanted by each part, the bytes available, and what
// would fit. Examples are a smaller micro-batch, recomputation, or a device with more memory.
absl::Status CheckModelFits(const ModelMemory& memory, const ModelConfig& config,
                            const OtherMemory& other, kernels::Device* device);

}  // namespace lodestar::model
