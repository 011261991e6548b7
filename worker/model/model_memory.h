// The functions here tell how much of a device's memory a model takes, and of the host's for
// copies, before it is allocated.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "worker/model/model.h"

namespace lodestar::model {

struct ModelMemory {
  int64_t parameter_bytes = 0;   // values, gradients and, with bf16, narrow parameters
  int64_t gradient_bytes = 0;    // of parameter_bytes
  int64_t narrow_bytes = 0;      // of parameter_bytes
  int64_t fixed_bytes = 0;       // of the activations: workspaces
  int64_t bytes_per_sample = 0;  // of the activations
  // The host memory of copies, which the system cannot page out.
  int64_t pinned_bytes_per_sample = 0;
  // The host memory of a step's samples as they are read, for all its micro-batches.
  int64_t batch_bytes_per_sample = 0;

  // Returns what the model takes with micro-batches of `samples` samples. The result is at most
  // half of the largest int64_t.
  int64_t BytesFor(int64_t samples) const;
  // Returns how many samples per micro-batch fit into `available_bytes`. 0 means that none fits.
  int64_t LargestBatch(int64_t available_bytes) const;
};

// Errors: those of BuildLayout(); InvalidArgument for a model that its client computes.
absl::StatusOr<ModelMemory> EstimateModelMemory(const ModelConfig& config, kernels::Device* device);

// Returns how many samples per micro-batch fit into `room_bytes` beside `other_bytes`. 0 means that
// none fits. Of main memory kProgramBytes are left to the program; of a card, a reserve is left to
// libraries and fragmentation.
int64_t LargestMicroBatch(const ModelMemory& memory, int64_t other_bytes, int64_t room_bytes,
                          bool memory_is_host);

// The limits of a micro-batch.
struct MicroBatchLimits {
  int64_t largest_share = 1;  // samples of one step
  int64_t free_bytes = 0;     // of the device; 0 means unknown
  int64_t other_bytes = 0;    // part of free_bytes that something else will take
  bool memory_is_host = true;
};

inline constexpr int64_t kMostChosenSamples = 64;
// The main memory that a worker takes beside its model and samples. Measured on gpt-nano and
// gpt-mini: 92 to 99 MB of its own and 8 to 25 MB shared with its servers.
inline constexpr int64_t kProgramBytes = 128'000'000;

// Returns the number of samples per micro-batch if the user has not chosen it: as many as fit, at
// least 1, at most the largest share and kMostChosenSamples. Activations get a sixteenth of the
// main memory that is free, because servers and other workers use it as well. A CPU is no faster
// with more (gpt-mini: 4 samples at once train as fast as 64 and take a tenth of the memory).
int64_t ChooseMicroBatch(const ModelMemory& memory, const MicroBatchLimits& limits);

// The memory that a worker takes beside its model.
struct OtherMemory {
  int64_t device_bytes = 0;
  // The part of device_bytes for a local optimizer's state and for the weights that a round's local
  // steps began with.
  int64_t local_step_bytes = 0;
  // The samples of a step. If the device's memory is the host's, they are part of device_bytes.
  int64_t batch_bytes = 0;
  // The pinned host memory, if the device's memory is not the host's.
  int64_t pinned_bytes = 0;
  // If all servers are on this machine, so much memory is shared with them, and is pinned as well.
  int64_t most_shared_bytes = 0;
};

// Returns one line for the log: how much memory model and micro-batch take, and the largest
// micro-batch that fits the device beside `other`, of which nothing is allocated yet.
std::string DescribeModelMemory(const ModelMemory& memory, const ModelConfig& config,
                                const OtherMemory& other, kernels::Device* device);

// Returns OK if the model fits the device, or if the device does not tell its memory. On a card
// only what is free now counts, because other processes keep what they have. All main memory
// counts, also what other processes use now, because they may give it back. Errors:
// ResourceExhausted naming the bytes wanted, part by part, the bytes there are and what would fit:
// a smaller micro-batch, recomputation, another dtype, a mode without local steps, a device with
// more memory.
absl::Status CheckModelFits(const ModelMemory& memory, const ModelConfig& config,
                            const OtherMemory& other, kernels::Device* device);

}  // namespace lodestar::model
