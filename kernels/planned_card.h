// SPDX-License-Identifier: Apache-2.0

// PlannedCard stands for a CUDA card that this process does not use. With it, the memory use of a
// model can be computed before there is a card, or for another dtype. It allocates nothing, and its
// operations must not be called.
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
