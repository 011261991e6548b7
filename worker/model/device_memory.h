// SPDX-License-Identifier: Apache-2.0

// DeviceMemory owns one allocation: memory of a Device, or pinned host memory for its copies.
#pragma once

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace lodestar::model {

class DeviceMemory {
 public:
  DeviceMemory() = default;
  // `device` must outlive the memory. Errors: those of Device::Allocate() and AllocateHost().
  static absl::StatusOr<DeviceMemory> Allocate(kernels::Device* device, size_t bytes) {
    absl::StatusOr<void*> data = device->Allocate(bytes);
    if (!data.ok()) return data.status();
    return DeviceMemory(device, *data, /*on_host=*/false);
  }
  static absl::StatusOr<DeviceMemory> AllocateHost(kernels::Device* device, size_t bytes) {
    absl::StatusOr<void*> data = device->AllocateHost(bytes);
    if (!data.ok()) return data.status();
    return DeviceMemory(device, *data, /*on_host=*/true);
  }

  DeviceMemory(DeviceMemory&& other) noexcept
      : device_(other.device_),
        data_(std::exchange(other.data_, nullptr)),
        on_host_(other.on_host_) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(on_host_, other.on_host_);
    return *this;
  }
  ~DeviceMemory() {
    if (data_ == nullptr) return;
    if (on_host_) {
      device_->ReleaseHost(data_);
    } else {
      device_->Release(data_);
    }
  }

  void* data() const { return data_; }

 private:
  DeviceMemory(kernels::Device* device, void* data, bool on_host)
      : device_(device), data_(data), on_host_(on_host) {}

  kernels::Device* device_ = nullptr;
  void* data_ = nullptr;
  bool on_host_ = false;
};

}  // namespace lodestar::model
