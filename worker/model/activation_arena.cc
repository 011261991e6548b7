#include "worker/model/activation_arena.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace lodestar {

void ActivationArena::Plan(Buf* target, int64_t num_elements, DType dtype) {
  reservations_.push_back({target, num_bytes_, num_elements, dtype});
  const int64_t bytes = num_elements * static_cast<int64_t>(DTypeBytes(dtype));
  num_bytes_ += (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

absl::Status ActivationArena::Allocate(const std::string& owner, Device* device) {
  absl::StatusOr<DeviceMemory> memory =
      DeviceMemory::Allocate(device, static_cast<size_t>(num_bytes_));
  if (!memory.ok()) {
    return absl::Status(memory.status().code(),
                        absl::StrCat("activations of ", owner, " need ", num_bytes_, " bytes on ",
                                     device->capabilities().name, ": ", memory.status().message(),
                                     "; choose a smaller micro-batch"));
  }
  memory_ = *std::move(memory);
  for (const Reservation& reservation : reservations_) {
    *reservation.target = Buf{static_cast<char*>(memory_.data()) + reservation.offset_bytes,
                              reservation.dtype, reservation.num_elements};
  }
  return absl::OkStatus();
}

}  // namespace lodestar
