// Activations and scratch of a model, planned once for the largest micro-batch and taken from the
// device in one piece. A model first plans all its buffers, then allocates; nothing is allocated in
// a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "worker/model/device_memory.h"

namespace lodestar {

class ActivationArena {
 public:
  // Every buffer starts at a multiple of this, so that vector loads of any device are aligned.
  static constexpr int64_t kAlignmentBytes = 256;

  // Reserves num_elements >= 0 of `dtype`. *target is filled by Allocate() and must stay where it
  // is until then.
  void Plan(Buf* target, int64_t num_elements, DType dtype);

  // Call once, after the last Plan(). `owner` names the model in errors.
  // Errors: ResourceExhausted naming owner and bytes, and what to change.
  absl::Status Allocate(const std::string& owner, Device* device);

  int64_t num_bytes() const { return num_bytes_; }

 private:
  struct Reservation {
    Buf* target;
    int64_t offset_bytes;
    int64_t num_elements;
    DType dtype;
  };

  std::vector<Reservation> reservations_;
  int64_t num_bytes_ = 0;
  DeviceMemory memory_;
};

}  // namespace lodestar
