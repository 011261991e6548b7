// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/host_mirror.h"

#include "common/runtime/check.h"
#include "common/runtime/remedy.h"
#include "common/runtime/status_macros.h"

namespace lodestar::trainer {

absl::StatusOr<std::unique_ptr<HostMirror>> HostMirror::Create(kernels::Device* device,
                                                               kernels::Buf vector,
                                                               DeviceTimeline* timeline) {
  LODESTAR_CHECK(vector.dtype == kernels::DType::kF32) << "host mirrors are fp32";
  auto mirror = std::unique_ptr<HostMirror>(new HostMirror(device, vector, timeline));
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
  if (data_ == nullptr || is_shared()) return;
  AwaitCopies().IgnoreError();
  device_->ReleaseHost(data_);
}

absl::Status HostMirror::AwaitCopies() {
  absl::Status status;
  if (last_to_device_.has_value()) status.Update(device_->Synchronize(*last_to_device_));
  if (last_to_host_.has_value()) status.Update(device_->Synchronize(*last_to_host_));
  return status;
}

absl::StatusOr<kernels::EventId> HostMirror::BeginToDevice() {
  const kernels::EventId computed = Computed();
  if (is_shared()) return computed;
  device_->Wait(kernels::StreamKind::kHostToDevice, computed);
  RETURN_IF_ERROR(AwaitCopies());
  return computed;
}

absl::Status HostMirror::CopyOut(absl::Span<std::byte> destination, int64_t begin) {
  return AsFinal(device_->CopyNow(destination.data(), OnDevice(begin), destination.size(),
                                  kernels::StreamKind::kDeviceToHost, [] {}));
}

absl::StatusOr<absl::Span<const std::byte>> HostMirror::Fetch(int64_t begin, int64_t bytes) {
  const absl::Span<std::byte> part = {reinterpret_cast<std::byte*>(data_) + begin,
                                      static_cast<size_t>(bytes)};
  RETURN_IF_ERROR(CopyOut(part, begin));
  return part;
}

absl::Status HostMirror::CopyIn(int64_t begin, absl::Span<const std::byte> source,
                                absl::FunctionRef<void()> meanwhile) {
  return AsFinal(device_->CopyNow(OnDevice(begin), source.data(), source.size(),
                                  kernels::StreamKind::kHostToDevice, meanwhile));
}

void HostMirror::Copy(float* destination, const float* source, int64_t num_elements,
                      kernels::StreamKind stream) {
  const int64_t bytes = num_elements * static_cast<int64_t>(sizeof(float));
  DeviceSpan span(timeline_, stream, "copy", {.bytes = bytes});
  device_->Copy(destination, source, bytes, stream);
}

void HostMirror::ToDevice(params::ElementRange range) {
  if (is_shared()) return;
  Copy(vector_.as<float>() + range.begin, data_ + range.begin, range.size(),
       kernels::StreamKind::kHostToDevice);
  last_to_device_ = device_->Record(kernels::StreamKind::kHostToDevice);
  device_->Wait(kernels::StreamKind::kCompute, *last_to_device_);
}

kernels::EventId HostMirror::ToHost(params::ElementRange range) {
  const kernels::EventId computed = Computed();
  if (is_shared()) return computed;
  device_->Wait(kernels::StreamKind::kDeviceToHost, computed);
  Copy(data_ + range.begin, vector_.as<float>() + range.begin, range.size(),
       kernels::StreamKind::kDeviceToHost);
  last_to_host_ = device_->Record(kernels::StreamKind::kDeviceToHost);
  return *last_to_host_;
}

}  // namespace lodestar::trainer
