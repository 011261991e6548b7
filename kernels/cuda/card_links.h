// CardLinks: how vectors travel between the cards of a group. One class per way (by NCCL, by copies
// of the runtime), chosen in MakeCardLinks().
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

// One of a group, in its order.
struct GroupCard {
  int ordinal = 0;
  cudaStream_t compute = nullptr;
  Errors* errors = nullptr;  // [1]
};

// What a member brings to an operation.
struct CardPart {
  float* values = nullptr;  // [num_elements]
  int64_t num_elements = 0;
  cudaEvent_t ready = nullptr;  // values may be read and written from then on
};

// An operation is queued by all members, each for itself, by its own thread, with its card chosen,
// on a stream of its own, which has waited for the member's `ready`. Failures go to its Errors.
class CardLinks {
 public:
  virtual ~CardLinks() = default;
  virtual std::string Describe() const = 0;
  // Streams read and write memory of other members: none may go on before all are done with the
  // operation. False: each stream is done when what it has queued itself is.
  virtual bool reaches_into_others() const = 0;
  // Member 0's values to all.
  virtual void Broadcast(int member, absl::Span<const CardPart> parts, cudaStream_t stream) = 0;
  // Sums over all members to member 0's values.
  virtual void Reduce(int member, absl::Span<const CardPart> parts, cudaStream_t stream) = 0;
  // Ends operations that wait on their cards for a member that will not come; operations do nothing
  // from here on. Any thread.
  virtual void Abort() {}
  // After Abort(), with no member in an operation: operations work again. Errors: why they do not.
  virtual absl::Status Renew() { return absl::OkStatus(); }
};

// By NCCL if `load_nccl` (may be null: there is none) finds it and it works between the cards, else
// by copies. Errors: those of device memory.
absl::StatusOr<std::unique_ptr<CardLinks>> MakeCardLinks(const std::vector<GroupCard>& cards,
                                                         NcclLoader load_nccl);

}  // namespace lodestar::cuda
