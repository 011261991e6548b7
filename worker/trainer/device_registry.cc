#include "worker/trainer/device_registry.h"

namespace lodestar {
namespace {

class DeviceRegistry final : public HostMemoryRegistry {
 public:
  explicit DeviceRegistry(Device* device) : device_(device) {}

  absl::Status Register(absl::Span<char> memory) override {
    return device_->RegisterHostMemory(memory.data(), memory.size());
  }
  void Unregister(absl::Span<char> memory) override {
    device_->UnregisterHostMemory(memory.data());
  }

 private:
  Device* const device_;
};

}  // namespace

std::unique_ptr<HostMemoryRegistry> MakeDeviceRegistry(Device* device) {
  if (device->capabilities().memory_is_host) return nullptr;
  return std::make_unique<DeviceRegistry>(device);
}

}  // namespace lodestar
