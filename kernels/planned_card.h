// SPDX-License-Identifier: Apache-2.0

// PlannedCard represents a CUDA card that does not exist on this machine, for planning its memory.
// So the memory use of a model is known before there is a card, or for another dtype than that of
// the present card. It allocates nothing. To call its operations is a bug of the caller.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/device.h"

namespace lodestar::kernels {

class PlannedCard final : public Device {
 public:
  // `compute` is f32 or bf16. `memory_bytes` is the memory of the card, which is assumed to be
  // free. 0 means unknown.
  explicit PlannedCard(DType compute, size_t memory_bytes = 0);

  const DeviceCapabilities& capabilities() const override { return capabilities_; }
  // These return the error Unimplemented.
  absl::StatusOr<void*> Allocate(size_t bytes) override;
  absl::StatusOr<void*> AllocateHost(size_t bytes) override;
  void Release(void* memory) override;
  void ReleaseHost(void* memory) override;
  size_t FreeMemoryBytes() override { return capabilities_.memory_bytes; }
  EventId Record(StreamKind stream) override;
  void Wait(StreamKind stream, EventId event) override;
  absl::Status Synchronize(EventId event) override;

#include "kernels/device_operations.inc"

 private:
  const DeviceCapabilities capabilities_;
};

}  // namespace lodestar::kernels
