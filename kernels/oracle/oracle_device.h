// The reference: every floating buffer is f64, every operation the plainest loop that is right.
// Written to be read.
#pragma once

#include <atomic>
#include <memory>

#include "kernels/device.h"

namespace lodestar {

class OracleDevice : public Device {
 public:
  OracleDevice();

  const DeviceCapabilities& capabilities() const override;
  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Release(void* memory) override;
  absl::StatusOr<void*> AllocateHost(size_t bytes) override;
  void ReleaseHost(void* memory) override;
  EventId Record(StreamKind stream) override;
  void Wait(StreamKind stream, EventId event) override;
  absl::Status Synchronize(EventId event) override;

#include "kernels/device_operations.inc"

 private:
  DeviceCapabilities capabilities_;
  std::atomic<EventId> num_events_{0};
};

std::unique_ptr<Device> MakeOracleDevice();

}  // namespace lodestar
