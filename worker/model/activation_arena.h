// SPDX-License-Identifier: Apache-2.0

// ActivationArena holds activations and scratch buffers of a model. A model first plans all its
// buffers for the largest micro-batch. Then Allocate() takes the memory from the device in one
// piece. No memory is allocated in a step.
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
  // Alignment of every buffer, so that vector loads are aligned on every device.
  static constexpr int64_t kAlignmentBytes = 256;

  // Reserves num_elements >= 0 elements of `dtype`. Allocate() sets *target. Until then *target
  // must not move.
  void Plan(kernels::Buf* target, int64_t num_elements, kernels::DType dtype);

  // place() returns the offset of the next buffer. After Rewind(place), the next buffer starts at
  // `place` again. It then shares memory with buffers that were planned there earlier. Two buffers
  // that share memory must never be in use at the same time.
  int64_t place() const { return next_byte_; }
  void Rewind(int64_t place) { next_byte_ = place; }

  // Allocates all planned buffers. Must be called once, after the last Plan(). `owner` names the
  // model in errors. Errors: ResourceExhausted naming the owner, the bytes wanted and free, and the
  // flags to change.
  absl::Status Allocate(const std::string& owner, kernels::Device* device);

  // Returns the size of all buffers planned so far.
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
