// SPDX-License-Identifier: Apache-2.0

// CardLinks sends vectors between the cards of a group. One implementation uses NCCL, the other
// uses copies of the CUDA runtime. MakeCardLinks() chooses the implementation.
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

// A member's vector in an operation.
struct CardPart {
  float* values = nullptr;  // [num_elements]
  int64_t num_elements = 0;
  cudaEvent_t ready = nullptr;  // the stream may read and write `values` after this event
};

// Each member queues each operation from its own thread, on its own stream, with its card as the
// current device. Requires: the stream has waited for CardPart::ready of the member. Errors are
// stored in the member's Errors.
class CardLinks {
 public:
  virtual ~CardLinks() = default;
  virtual std::string Describe() const = 0;
  // Returns true if a stream reads and writes memory of other members. Then later work on any
  // stream must wait until all streams have finished the operation. If the result is false, later
  // work on a stream must wait only for the operation on this stream.
  virtual bool reaches_into_others() const = 0;
  // Copies the values of member 0 to all members.
  virtual void Broadcast(int member, absl::Span<const CardPart> parts, cudaStream_t stream) = 0;
  // Sets the values of member 0 to the sum over all members.
  virtual void Reduce(int member, absl::Span<const CardPart> parts, cudaStream_t stream) = 0;
  // Ends operations that wait on a card for a missing member. Operations that are queued later do
  // nothing. May be called by any thread.
  virtual void Abort() {}
  // Makes operations work again after Abort(). No member may be in an operation. Errors: the reason
  // why operations still do not work.
  virtual absl::Status Renew() { return absl::OkStatus(); }
};

// Returns links that use NCCL, if `load_nccl` finds NCCL and it works between the cards. Otherwise
// returns links that copy. A null `load_nccl` finds no NCCL. Errors: those of device memory.
absl::StatusOr<std::unique_ptr<CardLinks>> MakeCardLinks(const std::vector<GroupCard>& cards,
                                                         NcclLoader load_nccl);

}  // namespace lodestar::cuda
