// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/device_registry.h"

namespace lodestar::trainer {
namespace {

class DeviceRegistry final : public client::HostMemoryRegistry {
 public:
  explicit DeviceRegistry(kernels::Device* device) : device_(device) {}

  absl::Status Register(absl::Span<char> memory) override {
    return device_->RegisterHostMemory(memory.data(), memory.size());
  }
  void Unregister(absl::Span<char> memory) override {
    device_->UnregisterHostMemory(memory.data());
  }

 private:
  kernels::Device* const device_;
};

}  // namespace

std::unique_ptr<client::HostMemoryRegistry> MakeDeviceRegistry(kernels::Device* device) {
  if (device->capabilities().memory_is_host) return nullptr;
  return std::make_unique<DeviceRegistry>(device);
}

}  // namespace lodestar::trainer
