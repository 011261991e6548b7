// What a model takes of a device's memory, and of the host's for copies, known before it is
// allocated.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "worker/model/model.h"

namespace lodestar {

struct ModelMemory {
  int64_t parameter_bytes = 0;   // values, gradients and, with bf16, narrow parameters
  int64_t gradient_bytes = 0;    // of parameter_bytes
  int64_t narrow_bytes = 0;      // of parameter_bytes
  int64_t fixed_bytes = 0;       // of the activations: workspaces
  int64_t bytes_per_sample = 0;  // of the activations
  // Host memory of copies, which the system cannot page out.
  int64_t pinned_bytes_per_sample = 0;
  // Host memory of a step's samples as they are read, of all its micro-batches.
  int64_t batch_bytes_per_sample = 0;

  // At most half of the largest number there is.
  int64_t BytesFor(int64_t samples) const;
  // Samples per micro-batch that fit into `available_bytes`; 0: none.
  int64_t LargestBatch(int64_t available_bytes) const;
};

// Errors: those of BuildLayout(); InvalidArgument for a model that its client computes.
absl::StatusOr<ModelMemory> EstimateModelMemory(const ModelConfig& config, Device* device);

// Samples per micro-batch that fit into `room_bytes` beside `other_bytes`; of a card's memory a
// reserve is left to libraries and fragmentation. 0: none.
int64_t LargestMicroBatch(const ModelMemory& memory, int64_t other_bytes, int64_t room_bytes,
                          bool memory_is_host);

// What bounds a micro-batch.
struct MicroBatchLimits {
  int64_t largest_share = 1;  // samples of one step
  int64_t free_bytes = 0;     // of the device; 0: unknown
  int64_t other_bytes = 0;    // that something else will take of them
  bool memory_is_host = true;
};

inline constexpr int64_t kMostChosenSamples = 64;

// Samples per micro-batch where nobody has chosen them: as many as fit, at least 1, at most the
// largest share and kMostChosenSamples. Of main memory activations get a sixteenth of what is free:
// servers and other workers live there, too, and a CPU is no faster with more (gpt-mini: 4 samples
// at once train as fast as 64 and take a tenth of the memory).
int64_t ChooseMicroBatch(const ModelMemory& memory, const MicroBatchLimits& limits);

// What a worker takes beside its model.
struct OtherMemory {
  int64_t device_bytes = 0;
  // Of these: a local optimizer's state and the weights that a round's local steps began with.
  int64_t local_step_bytes = 0;
  // The samples of a step; of device_bytes, too, where the device's memory is the host's.
  int64_t batch_bytes = 0;
  // Where the device's memory is not the host's.
  int64_t pinned_bytes = 0;
  int64_t most_shared_bytes = 0;  // pinned, too, if all servers are on this machine
};

// One line for the log: what model and micro-batch take, and the largest micro-batch that fits the
// device beside `other`, of which nothing is allocated yet.
std::string DescribeModelMemory(const ModelMemory& memory, const ModelConfig& config,
                                const OtherMemory& other, Device* device);

// Errors: ResourceExhausted naming the bytes wanted, part by part, the bytes there are and what
// would fit: a smaller micro-batch, recomputation, another dtype, a mode without local steps, a
// device with more memory. OK where the device does not tell its memory. Of a card what is free now
// counts: other processes keep what they have. Main memory is compared whole, also what others use
// now: they may give it back.
absl::Status CheckModelFits(const ModelMemory& memory, const ModelConfig& config,
                            const OtherMemory& other, Device* device);

}  // namespace lodestar
