// SPDX-License-Identifier: Apache-2.0

// OracleDevice is the reference for tests. All floating buffers are f64, and each operation is the
// simplest correct loop. The code is meant to be readable, not fast.
#pragma once

#include <atomic>
#include <memory>

#include "kernels/device.h"

namespace lodestar::oracle {

class OracleDevice : public kernels::Device {
 public:
  OracleDevice();

  const kernels::DeviceCapabilities& capabilities() const override;
  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Release(void* memory) override;
  absl::StatusOr<void*> AllocateHost(size_t bytes) override;
  void ReleaseHost(void* memory) override;
  kernels::EventId Record(kernels::StreamKind stream) override;
  void Wait(kernels::StreamKind stream, kernels::EventId event) override;
  absl::Status Synchronize(kernels::EventId event) override;

#include "kernels/device_operations.inc"

 private:
  kernels::DeviceCapabilities capabilities_;
  std::atomic<kernels::EventId> num_events_{0};
};

std::unique_ptr<kernels::Device> MakeOracleDevice();

}  // namespace lodestar::oracle
