// SPDX-License-Identifier: Apache-2.0

#include "worker/model/activation_arena.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/status_macros.h"

namespace lodestar::model {

void ActivationArena::Plan(kernels::Buf* target, int64_t num_elements, kernels::DType dtype) {
  reservations_.push_back({target, next_byte_, num_elements, dtype});
  const int64_t bytes = num_elements * static_cast<int64_t>(kernels::DTypeBytes(dtype));
  next_byte_ += (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  num_bytes_ = std::max(num_bytes_, next_byte_);
}

absl::Status ActivationArena::Allocate(const std::string& owner, kernels::Device* device) {
  absl::StatusOr<DeviceMemory> memory =
      DeviceMemory::Allocate(device, static_cast<size_t>(num_bytes_));
  if (!memory.ok()) {
    return absl::Status(memory.status().code(),
                        absl::StrCat("activations of ", owner, " need ", num_bytes_, " bytes on ",
                                     device->capabilities().name, ": ", memory.status().message(),
                                     "; choose a smaller micro-batch (--max_micro_batch) or keep "
                                     "fewer activations (--recompute=gelu or block)"));
  }
  memory_ = *std::move(memory);
  for (const Reservation& reservation : reservations_) {
    *reservation.target =
        kernels::Buf{static_cast<char*>(memory_.data()) + reservation.offset_bytes,
                     reservation.dtype, reservation.num_elements};
  }
  return absl::OkStatus();
}

}  // namespace lodestar::model
