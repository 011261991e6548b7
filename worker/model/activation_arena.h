// ActivationArena holds activations and scratch of a model. They are planned once for the largest
// micro-batch and taken from the device in one piece. A model first plans all its buffers, then
// allocates; nothing is allocated in a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "worker/model/device_memory.h"

namespace lodestar::model {

class ActivationArena {
 public:
  // Every buffer starts at a multiple of this, so that vector loads of any device are aligned.
  static constexpr int64_t kAlignmentBytes = 256;

  // Reserves num_elements >= 0 of `dtype`. *target is filled by Allocate() and must stay where it
  // is until then.
  void Plan(kernels::Buf* target, int64_t num_elements, kernels::DType dtype);

  // place() returns where the next buffer starts. After Rewind(place) buffers are planned from that
  // place again, and overlap those that were planned there before. This is for buffers that are
  // never in use at the same time.
  int64_t place() const { return next_byte_; }
  void Rewind(int64_t place) { next_byte_ = place; }

  // Call once, after the last Plan(). `owner` names the model in errors.
  // Errors: ResourceExhausted naming owner, bytes asked for and free, and the flags to change.
  absl::Status Allocate(const std::string& owner, kernels::Device* device);

  // Returns the size of the allocation, as far as it is planned.
  int64_t num_bytes() const { return num_bytes_; }

 private:
  struct Reservation {
    kernels::Buf* target;
    int64_t offset_bytes;
    int64_t num_elements;
    kernels::DType dtype;
  };

  std::vector<Reservation> reservations_;
  int64_t next_byte_ = 0;
  int64_t num_bytes_ = 0;
  DeviceMemory memory_;
};

}  // namespace lodestar::model
