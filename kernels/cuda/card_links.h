// CardLinks sends vectors between the cards of a group. One class uses NCCL, one uses copies of the
// CUDA runtime; MakeCardLinks() chooses.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/errors.h"
#include "kernels/cuda/nccl.h"

namespace lodestar::cuda {

// A member of a group. Members are numbered from 0 on.
struct GroupCard {
  int ordinal = 0;
  cudaStream_t compute = nullptr;
  Errors* errors = nullptr;  // [1], not owned
};

// The vector with which a member takes part in an operation.
struct CardPart {
  float* values = nullptr;  // [num_elements]
  int64_t num_elements = 0;
  cudaEvent_t ready = nullptr;  // values may be read and written after this event
};

// Every member queues each operation for itself, from its own thread, with its card as the current
// device, on its own stream. The stream must have waited for the member's `ready`. Failures go to
// the member's Errors.
class CardLinks {
 public:
  virtual ~CardLinks() = default;
  virtual std::string Describe() const = 0;
  // Returns true if streams read and write memory of other members. Then no stream may go on before
  // all streams are done with the operation. False means that each stream waits only for itself.
  virtual bool reaches_into_others() const = 0;
  // Copies member 0's values to all members.
  virtual void Broadcast(int member, absl::Span<const CardPart> parts, cudaStream_t stream) = 0;
  // Sets member 0's values to the sum over all members.
  virtual void Reduce(int member, absl::Span<const CardPart> parts, cudaStream_t stream) = 0;
  // Ends operations that wait on their cards for a missing member. Later operations do nothing.
  // Any thread may call it.
  virtual void Abort() {}
  // Lets operations work again after Abort(). No member may be in an operation. Errors: the reason
  // why operations still do not work.
  virtual absl::Status Renew() { return absl::OkStatus(); }
};

// Returns links by NCCL if `load_nccl` finds it and it works between the cards, else links by
// copies. A null `load_nccl` means copies. Errors: those of device memory.
absl::StatusOr<std::unique_ptr<CardLinks>> MakeCardLinks(const std::vector<GroupCard>& cards,
                                                         NcclLoader load_nccl);

}  // namespace lodestar::cuda
