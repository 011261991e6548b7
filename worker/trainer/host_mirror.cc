#include "worker/trainer/host_mirror.h"

#include "common/check.h"

namespace lodestar {

absl::StatusOr<std::unique_ptr<HostMirror>> HostMirror::Create(Device* device, Buf vector) {
  LODESTAR_CHECK(vector.dtype == DType::kF32) << "host mirrors are fp32";
  auto mirror = std::unique_ptr<HostMirror>(new HostMirror(device, vector));
  if (device->capabilities().memory_is_host) {
    mirror->data_ = vector.as<float>();
    return mirror;
  }
  absl::StatusOr<void*> memory = device->AllocateHost(vector.num_elements * sizeof(float));
  if (!memory.ok()) return memory.status();
  mirror->data_ = static_cast<float*>(*memory);
  return mirror;
}

HostMirror::~HostMirror() {
  if (data_ != nullptr && !is_shared()) device_->ReleaseHost(data_);
}

absl::Status HostMirror::ToDevice(ElementRange range) {
  if (is_shared()) return absl::OkStatus();
  device_->Copy(vector_.as<float>() + range.begin, data_ + range.begin,
                range.size() * sizeof(float), StreamKind::kHostToDevice);
  return device_->Synchronize(device_->Record(StreamKind::kHostToDevice));
}

absl::Status HostMirror::ToHost(ElementRange range) {
  if (is_shared()) return absl::OkStatus();
  // The gradient is produced on the compute stream.
  device_->Wait(StreamKind::kDeviceToHost, device_->Record(StreamKind::kCompute));
  device_->Copy(data_ + range.begin, vector_.as<float>() + range.begin,
                range.size() * sizeof(float), StreamKind::kDeviceToHost);
  return device_->Synchronize(device_->Record(StreamKind::kDeviceToHost));
}

}  // namespace lodestar
