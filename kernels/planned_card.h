// PlannedCard: a CUDA card that is not there. It tells what planning asks of a device, so that what
// a model takes is known before there is a card, or in another dtype than the present one's.
// Nothing is allocated on it, and it computes nothing: that is a broken invariant of the caller.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/device.h"

namespace lodestar {

class PlannedCard final : public Device {
 public:
  // `compute`: f32 or bf16. `memory_bytes`: all that it has, and all of it free; 0: unknown.
  explicit PlannedCard(DType compute, size_t memory_bytes = 0);

  const DeviceCapabilities& capabilities() const override { return capabilities_; }
  // Errors: Unimplemented.
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

}  // namespace lodestar
